// Draws a generation: tokens coloured by their fate, steps as rows of slots, and what is behind each slot.
// Steps are only ever added, so nodes stay, and with them the reader's focus.

const MARKS = { accepted: '✓', rejected: '✗', behind: '–', trimmed: '✂', recovered: '↺', bonus: '+', sampled: '·' };
const MEANS = {
  accepted: 'accepted draft token', recovered: 'recovered token: the target\u2019s own after a rejection',
  bonus: 'bonus token: the target\u2019s own after a full accept', sampled: 'sampled: no draft was verified',
};
const SLOTS = {
  accepted: 'accepted', rejected: 'rejected', behind: 'verified, but behind a rejection or the end: no label',
  trimmed: 'trimmed: not given to the target',
};

const make = (kind, name, text) => {
  const node = document.createElement(kind);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};
const visible = (text) => text.replace(/\n/g, '⏎').replace(/ /g, '\u00b7') || '∅';
const chance = (x) => x === null ? '–' : x > 0 && x < 0.0005 ? x.toExponential(0) : x.toFixed(3);

const legend = () => {
  const node = make('div', 'legend');
  for (const [fate, text] of Object.entries(MEANS)) {
    const each = node.appendChild(make('div'));
    each.appendChild(make('span', 'token ' + fate, 'token'));
    each.appendChild(make('span', 'what', ' ' + text));
  }
  const slots = node.appendChild(make('div', 'what'));
  slots.textContent = Object.entries(SLOTS).map(([fate, text]) => MARKS[fate] + ' ' + text).join('  ·  ');
  return node;
};

const explained = (slot, position) => {
  const token = '\u201c' + visible(slot.text) + '\u201d';
  const p = chance(slot.p), q = chance(slot.q), kept = slot.q ? Math.min(1, slot.p / slot.q) : 1;
  const drawn = `Position ${position}: the drafter drew ${token} with q = ${q}`;
  switch (slot.fate) {
    case 'accepted': case 'rejected':
      return `${drawn}; the target gives it p = ${p}. Kept with probability min(1, p/q) = ${chance(kept)}: `
        + slot.fate + '.';
    case 'behind':
      return `${drawn}; it was verified, but has no label: a token before it was rejected, or ended the text.`;
    case 'trimmed':
      return `${drawn}; trimmed: the target did not see it, so whether it would have been kept is not known.`;
    case 'recovered':
      return `${token} (p = ${p}) replaces the rejected draft token. It was drawn from (p \u2212 q)+, `
        + 'what p has above q, so that the output follows the target exactly.';
    case 'bonus':
      return `Every verified draft token was kept, so the step adds a bonus token, ${token}, drawn from the `
        + `target with p = ${p}.`;
    default: return `No draft token was verified, so ${token} was drawn from the target with p = ${p}.`;
  }
};

const tops = (title, choices, drawn, colour) => {
  const node = make('div');
  node.appendChild(make('h5', '', title));
  for (const [token, text, probability] of choices) {
    const row = node.appendChild(make('div', 'choice' + (token === drawn ? ' drawn' : '')));
    row.style.setProperty('--bar', `var(--${colour})`);
    row.appendChild(make('i')).style.width = 100 * probability + '%';
    row.appendChild(make('span', '', visible(text)));
    row.appendChild(make('span', '', chance(probability)));
  }
  return node;
};

const show = (root, button, slot, position) => {
  const panel = root.panel;
  panel.replaceChildren(make('p', '', explained(slot, position)));
  const both = panel.appendChild(make('div', 'tops'));
  if (slot.draft_top.length) both.appendChild(tops('drafter, q', slot.draft_top, slot.token, 'plain'));
  if (slot.target_top.length) both.appendChild(tops('target, p', slot.target_top, slot.token, 'target'));
  if (slot.residual_top.length) {
    both.appendChild(tops('drawn from (p \u2212 q)+', slot.residual_top, slot.token, 'rejected'));
  }
  panel.hidden = false;
  const box = button.getBoundingClientRect(), whole = root.getBoundingClientRect();
  panel.style.left = Math.max(0, Math.min(box.left - whole.left, whole.width - panel.offsetWidth)) + 'px';
  panel.style.top = box.bottom - whole.top + 6 + 'px';
  root.querySelectorAll('.token.at').forEach((node) => node.classList.remove('at'));
  if (button.said) button.said.classList.add('at');
};
const hide = (root) => {
  root.panel.hidden = true;
  root.querySelectorAll('.token.at').forEach((node) => node.classList.remove('at'));
};

const card = (root, slot, position, own, said) => {
  const node = make('button', `slot ${slot.fate}${own ? ' own' : ''}`);
  node.type = 'button';
  node.dataset.fate = slot.fate;
  node.said = said;
  node.appendChild(make('b', '', MARKS[slot.fate] + ' ')).appendChild(make('span', '', visible(slot.text)));
  const numbers = own ? [slot.fate, 'p ' + chance(slot.p)]
    : slot.estimate === null ? [slot.fate, 'no estimate']
    : ['estimate ' + chance(slot.estimate), 'survival ' + chance(slot.survival)];
  for (const text of numbers) node.appendChild(make('small', '', text));
  node.setAttribute('aria-label', explained(slot, position));
  node.setAttribute('aria-describedby', root.panel.id);
  const open = () => show(root, node, slot, position);
  node.addEventListener('mouseenter', open);
  node.addEventListener('focus', open);
  node.addEventListener('click', open);
  node.addEventListener('mouseleave', () => { if (document.activeElement !== node) hide(root); });
  node.addEventListener('blur', () => hide(root));
  node.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide(root);
    const all = [...node.parentElement.children], step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) (all[all.indexOf(node) + step] || node).focus();
  });
  return node;
};

// The target reads all verified draft tokens of a step, and the token before them, in one pass.
const pass = (step) => {
  const verified = step.draft.filter((slot) => slot.fate !== 'trimmed').length;
  const lines = [verified ? `${verified} verified in one pass` : 'none verified'];
  if (step.verify_ms !== null && step.verify_ms !== undefined) {
    if (step.draft.length) lines.push(`drafting ${step.draft_ms.toFixed(1)} ms`);
    lines.push(`pass ${step.verify_ms.toFixed(1)} ms`);
  }
  return lines;
};

const add = (root, step, number) => {
  const said = step.texts.map((text, i) => {
    const node = root.said.appendChild(make('span', 'token ' + step.fates[i], text));
    node.dataset.fate = step.fates[i];
    node.title = MEANS[step.fates[i]];
    return node;
  });
  const row = make('li', 'step');
  const count = `${step.tokens.length} token${step.tokens.length === 1 ? '' : 's'}`;
  const about = row.appendChild(make('div', 'number', `step ${number}`));
  for (const line of [count, ...pass(step)]) about.appendChild(make('div', '', line));
  const slots = row.appendChild(make('div', 'slots'));
  step.draft.forEach((slot, k) => {
    slots.appendChild(card(root, slot, k, false, slot.fate === 'accepted' ? said[k] : null));
  });
  if (step.own) slots.appendChild(card(root, step.own, step.draft.length, true, said[said.length - 1]));
  const last = root.steps.lastElementChild;
  const followed = root.follows && last && last.getBoundingClientRect().top < window.innerHeight;
  root.steps.appendChild(row);
  if (followed) row.scrollIntoView({ block: 'nearest' });
};

export default function draw({ data, parentElement }) {
  let root = parentElement.querySelector('.avlab-tokens');
  if (!root) {
    root = parentElement.appendChild(make('div', 'avlab-tokens'));
    for (const [name, colour] of Object.entries(data.colours)) root.style.setProperty('--' + name, colour);
    root.drawn = 0;
    root.panel = make('div', 'panel');
    root.panel.id = 'avlab-panel-' + data.key;
    root.panel.hidden = true;
    root.panel.setAttribute('role', 'tooltip');
    root.appendChild(legend());
    root.said = root.appendChild(make('p', 'said'));
    root.said.setAttribute('aria-live', 'polite');
    root.said.setAttribute('aria-label', 'What the model said');
    root.steps = root.appendChild(make('ol', 'steps'));
    root.appendChild(root.panel);
  }
  root.follows = root.drawn > 0; // a reader who looks at the newest step keeps it in sight
  for (; root.drawn < data.steps.length; root.drawn += 1) add(root, data.steps[root.drawn], root.drawn + 1);
}
