"""The browser's side of the playground: tokens coloured by their fate, steps as rows of slots, and what is behind each.

Steps are only ever added, so nodes stay, and with them the reader's focus.
"""

from avlab.figures import palette

CSS = (
    """
.avlab-tokens {
  --accepted: ACCEPTED; --rejected: REJECTED; --bonus: BONUS; --plain: SCHEDULED; --target: ADMITTED;
  position: relative; line-height: 1.5; color: var(--st-text-color); min-height: 34rem;
}
.avlab-tokens .legend { display: flex; flex-wrap: wrap; gap: 0.3rem 1.1rem; font-size: 0.86rem; margin-bottom: 0.6rem; }
.avlab-tokens .legend span.what { opacity: 0.8; }
.avlab-tokens .said {
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: 1.02rem; line-height: 2; padding: 0.7rem 0.9rem;
  border-radius: 0.5rem; background: var(--st-secondary-background-color); min-height: 3rem; margin: 0;
}
.avlab-tokens .token { border-radius: 0.2rem; padding: 0.12em 0; text-underline-offset: 0.3em; }
.avlab-tokens .token.at { outline: 2px solid var(--st-primary-color); }
.avlab-tokens .token.accepted {
  background: color-mix(in srgb, var(--accepted) 22%, transparent);
  text-decoration: underline solid var(--accepted) 2px;
}
.avlab-tokens .token.correction {
  background: color-mix(in srgb, var(--rejected) 20%, transparent);
  text-decoration: underline wavy var(--rejected) 1.5px;
}
.avlab-tokens .token.bonus {
  background: color-mix(in srgb, var(--bonus) 24%, transparent);
  text-decoration: underline double var(--bonus) 2px;
}
.avlab-tokens .token.sampled { text-decoration: underline dotted var(--plain) 2px; }
.avlab-tokens .steps { list-style: none; padding: 0; margin: 0.9rem 0 0; }
.avlab-tokens .step { display: grid; grid-template-columns: 5.2rem 1fr; gap: 0.6rem; padding: 0.5rem 0; }
.avlab-tokens .step + .step { border-top: 1px solid rgba(128, 138, 150, 0.22); }
.avlab-tokens .number { font-size: 0.84rem; opacity: 0.8; padding-top: 0.3rem; }
.avlab-tokens .slots { display: flex; flex-wrap: wrap; gap: 0.35rem; align-items: stretch; }
.avlab-tokens button.slot {
  font: inherit; color: inherit; text-align: left; background: transparent; cursor: help; padding: 0.25rem 0.5rem;
  border: 1.5px solid rgba(128, 138, 150, 0.45); border-radius: 0.4rem; min-width: 5.1rem; max-width: 11rem;
}
.avlab-tokens button.slot:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
.avlab-tokens .slot b { display: block; font-family: var(--st-code-font, monospace); font-size: 0.88rem;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.avlab-tokens .slot small { display: block; font-size: 0.74rem; opacity: 0.85; font-variant-numeric: tabular-nums; }
.avlab-tokens .slot.accepted {
  border-color: var(--accepted); background: color-mix(in srgb, var(--accepted) 12%, transparent);
}
.avlab-tokens .slot.rejected {
  border-color: var(--rejected); background: color-mix(in srgb, var(--rejected) 12%, transparent);
}
.avlab-tokens .slot.rejected b span { text-decoration: line-through; }
.avlab-tokens .slot.behind { border-color: var(--target); border-style: dotted; }
.avlab-tokens .slot.trimmed { border-style: dashed; opacity: 0.72; }
.avlab-tokens .slot.own { margin-left: 0.5rem; }
.avlab-tokens .slot.correction { border-color: var(--rejected); border-width: 1.5px 1.5px 1.5px 5px; }
.avlab-tokens .slot.bonus { border-color: var(--bonus); border-width: 1.5px 1.5px 1.5px 5px; }
.avlab-tokens .slot.sampled { border-color: var(--plain); border-width: 1.5px 1.5px 1.5px 5px; }
.avlab-tokens .panel {
  position: absolute; z-index: 20; width: min(29rem, 100%); box-sizing: border-box; padding: 0.7rem 0.9rem;
  border-radius: 0.5rem; background: var(--st-background-color); border: 1px solid rgba(128, 138, 150, 0.5);
  box-shadow: 0 6px 24px rgba(0, 0, 0, 0.22); font-size: 0.86rem;
}
.avlab-tokens .panel[hidden] { display: none; }
.avlab-tokens .panel p { margin: 0 0 0.5rem; }
.avlab-tokens .tops { display: grid; grid-template-columns: 1fr 1fr; gap: 0.9rem; }
.avlab-tokens .tops h5 { margin: 0 0 0.2rem; padding: 0; font-size: 0.82rem; font-weight: 600; }
.avlab-tokens .choice { display: grid; grid-template-columns: 1fr 3.2rem; position: relative; padding: 0 0.25rem;
  font-family: var(--st-code-font, monospace); font-size: 0.78rem; line-height: 1.55; }
.avlab-tokens .choice i {
  position: absolute; inset: 2px auto 2px 0; background: var(--bar); opacity: 0.25; border-radius: 2px;
}
.avlab-tokens .choice span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; position: relative; }
.avlab-tokens .choice span + span { text-align: right; font-variant-numeric: tabular-nums; }
.avlab-tokens .choice.drawn { font-weight: 700; outline: 1px solid currentColor; border-radius: 2px; }
@media (max-width: 640px) {
  .avlab-tokens .step { grid-template-columns: 1fr; gap: 0.2rem; }
  .avlab-tokens button.slot { min-width: 4.6rem; max-width: 45%; }
}
""".replace("ACCEPTED", palette.ACCEPTED)
    .replace("REJECTED", palette.REJECTED)
    .replace("BONUS", palette.BONUS)
    .replace("SCHEDULED", palette.SCHEDULED)
    .replace("ADMITTED", palette.ADMITTED)
)

JS = """
const MARKS = { accepted: '✓', rejected: '✗', behind: '–', trimmed: '✂', correction: '↺', bonus: '+', sampled: '·' };
const MEANS = {
  accepted: 'accepted draft token', correction: 'correction: the target\\u2019s own after a rejection',
  bonus: 'bonus token: the target\\u2019s own after a full accept', sampled: 'sampled: no draft was verified',
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
const visible = (text) => text.replace(/\\n/g, '⏎').replace(/ /g, '\\u00b7') || '∅';
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
  const token = '\\u201c' + visible(slot.text) + '\\u201d';
  const p = chance(slot.p), q = chance(slot.q), kept = slot.q ? Math.min(1, slot.p / slot.q) : 1;
  const drawn = `Position ${position}: the drafter drew ${token} with q = ${q}`;
  switch (slot.fate) {
    case 'accepted': case 'rejected':
      return `${drawn}; the target gives it p = ${p}. Kept with probability min(1, p/q) = ${chance(kept)}: `
        + slot.fate + '.';
    case 'behind':
      return `${drawn}; the target looked in vain: what stood before it was refused, or ended the text.`;
    case 'trimmed':
      return `${drawn}. The policy did not give it to the target: nobody knows whether it would have been kept.`;
    case 'correction':
      return `${token} (p = ${p}) replaces the refused draft token. It was drawn from what the target wants `
        + 'more than the drafter, (p \\u2212 q)+, which makes the outcome exactly the target\\u2019s.';
    case 'bonus':
      return `Every verified draft token was kept, so ${token} came on top, drawn from the target with p = ${p}.`;
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
    both.appendChild(tops('drawn from (p \\u2212 q)+', slot.residual_top, slot.token, 'rejected'));
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

const add = (root, step, number) => {
  const said = step.texts.map((text, i) => {
    const node = root.said.appendChild(make('span', 'token ' + step.fates[i], text));
    node.dataset.fate = step.fates[i];
    node.title = MEANS[step.fates[i]];
    return node;
  });
  const row = make('li', 'step');
  const count = `${step.tokens.length} token${step.tokens.length === 1 ? '' : 's'}`;
  row.appendChild(make('div', 'number', `step ${number}`)).appendChild(make('div', '', count));
  const slots = row.appendChild(make('div', 'slots'));
  step.draft.forEach((slot, k) => {
    slots.appendChild(card(root, slot, k, false, slot.fate === 'accepted' ? said[k] : null));
  });
  if (step.own) slots.appendChild(card(root, step.own, step.draft.length, true, said[said.length - 1]));
  root.steps.prepend(row);
};

export default function draw({ data, parentElement }) {
  let root = parentElement.querySelector('.avlab-tokens');
  if (!root) {
    root = parentElement.appendChild(make('div', 'avlab-tokens'));
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
  for (; root.drawn < data.steps.length; root.drawn += 1) add(root, data.steps[root.drawn], root.drawn + 1);
}
"""
