// The tour without a server: draws the views that were computed when the folder was made.

const { scenes, words } = window.AVLAB_TOUR;
const at = (id) => document.getElementById(id);
const places = Object.fromEntries(scenes.map((scene) => [scene.name, scene.control.at]));
const answers = {};
let number = 0;

const choices = (options, chosen, pick) => {
  const box = document.createElement('div');
  box.className = 'choices';
  options.forEach((option, place) => {
    const button = document.createElement('button');
    button.textContent = option;
    button.setAttribute('aria-pressed', place === chosen);
    button.onclick = () => pick(place);
    box.append(button);
  });
  return box;
};

const lines = (tag, texts) => texts.map((text) => Object.assign(document.createElement(tag), { textContent: text }));

function control(scene) {
  const { label, options, slider } = scene.control;
  const title = document.createElement('label');
  const choose = (place) => { places[scene.name] = place; view(scene); };
  const name = () => { title.textContent = `${label}: ${options[places[scene.name]]}`; };
  name();
  let field;
  if (slider) {
    field = document.createElement('input');
    Object.assign(field, { type: 'range', min: 0, max: options.length - 1, value: places[scene.name] });
    field.setAttribute('aria-label', label);
    field.oninput = () => { choose(Number(field.value)); name(); };
  } else {
    field = choices(options, places[scene.name], (place) => { choose(place); control(scene); });
  }
  at('control').replaceChildren(title, field);
  if (scene.name === 'learning') {
    const forget = Object.assign(document.createElement('button'), { textContent: 'Forget' });
    forget.onclick = () => { choose(0); control(scene); };
    at('control').append(forget);
  }
}

function view(scene) {
  const shown = scene.views[places[scene.name]];
  at('says').textContent = shown.says;
  at('chart-title').textContent = shown.title + (scene.emulated ? ', emulated' : '');
  at('reading').textContent = shown.reading;
  at('emulated').textContent = scene.emulated ? `Speeds are ${scene.emulated}.` : '';
  draw({
    data: { figure: JSON.stringify(shown.figure), alt: `Chart: ${shown.title}. ${shown.reading}`, key: scene.name },
    parentElement: at('chart'),
  });
}

function quiz(scene) {
  const { quiz: asked } = scene;
  const given = answers[scene.name];
  at('shown').hidden = Boolean(asked) && given === undefined;
  if (!asked) {
    at('quiz').replaceChildren();
    return;
  }
  const pick = (place) => { answers[scene.name] = place; show(); };
  const right = asked.answers[asked.right];
  const verdict = given === undefined ? 'Answer to see the figure.' : given === asked.right ? `Right. ${right}.` : `Not quite. It is: ${right}.`;
  at('quiz').replaceChildren(...lines('p', [asked.asked]), choices(asked.answers, given, pick), ...lines('p', [verdict]));
}

function show() {
  const scene = scenes[number];
  document.title = `avlab: ${scene.title}`;
  at('title').textContent = `${number + 1} · ${scene.title}`;
  at('question').textContent = scene.question;
  at('back').disabled = number === 0;
  at('next').disabled = number === scenes.length - 1;
  [...at('steps').querySelectorAll('button')].forEach((button, place) => button.setAttribute('aria-pressed', place === number));
  at('notes').replaceChildren(...lines('li', scene.notes));
  quiz(scene);
  if (!at('shown').hidden) {
    control(scene);
    view(scene);
  }
}

function go(to) {
  number = Math.min(Math.max(to, 0), scenes.length - 1);
  history.replaceState(null, '', `#${scenes[number].name}`);
  show();
}

const named = () => Math.max(0, scenes.findIndex((scene) => scene.name === location.hash.slice(1)));

scenes.forEach((scene, place) => {
  const button = Object.assign(document.createElement('button'), { textContent: place + 1, title: scene.title });
  button.onclick = () => go(place);
  if (place && scenes[place - 1].part !== scene.part) at('steps').append(...lines('span', [scene.part]));
  at('steps').append(button);
});
for (const [word, means] of Object.entries(words)) at('words').append(...lines('dt', [word]), ...lines('dd', [means]));
at('back').onclick = () => go(number - 1);
at('next').onclick = () => go(number + 1);
at('classroom').onchange = (event) => document.body.classList.toggle('classroom', event.target.checked);
addEventListener('hashchange', () => go(named()));
addEventListener('keydown', (event) => {
  if (event.target.matches('input[type=range]') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'ArrowRight' || event.key === 'PageDown') go(number + 1);
  if (event.key === 'ArrowLeft' || event.key === 'PageUp') go(number - 1);
});
go(named());
