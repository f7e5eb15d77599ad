// Draws a chart: one node, updated in place by Plotly.react, in the theme's colours. Stands behind plotly.js.

// Plotly hands functions of the page's colours to axes, legend and text: a figure says nothing about the theme.
const themed = (figure, style) => {
  const text = style.getPropertyValue('--st-text-color').trim() || '#444';
  const back = style.getPropertyValue('--st-background-color').trim() || '#fff';
  const font = style.getPropertyValue('--st-font').trim() || 'sans-serif';
  const layout = figure.layout;
  layout.paper_bgcolor = layout.plot_bgcolor = 'rgba(0,0,0,0)';
  layout.font = { size: 12, ...layout.font, color: text, family: font };
  layout.hoverlabel = { bgcolor: back, bordercolor: 'rgba(128,138,150,0.5)', font: { color: text, family: font } };
  layout.modebar = { bgcolor: 'rgba(0,0,0,0)', color: 'rgba(128,138,150,0.7)', activecolor: text };
  for (const name of Object.keys(layout)) {
    if (!/^[xy]axis\d*$/.test(name)) continue;
    const own = layout[name];
    layout[name] = {
      gridcolor: 'rgba(128,138,150,0.18)', linecolor: 'rgba(128,138,150,0.5)', zeroline: false, ...own,
      tickfont: { color: text, ...own.tickfont },
    };
  }
  return figure;
};

// a finger that moves over a chart scrolls the page; buttons that could not hide would lie on the legend
const TOUCH = matchMedia('(hover: none) and (pointer: coarse)').matches;
const OPTIONS = {
  responsive: true, displaylogo: false, showSendToCloud: false, displayModeBar: TOUCH ? false : 'hover',
  modeBarButtonsToRemove: ['lasso2d', 'select2d', 'autoScale2d'],
};
const WHOLE = {  // a button of every chart
  name: 'Full screen', title: 'Full screen',
  icon: { width: 24, height: 24, path: 'M4 9V4h5v2H6v3zm11-5h5v5h-2V6h-3zM4 15h2v3h3v2H4zm14 0h2v5h-5v-2h3z' },
  click: (div) => (document.fullscreenElement ? document.exitFullscreen() : div.requestFullscreen()),
};
OPTIONS.modeBarButtonsToAdd = [WHOLE];
document.addEventListener('fullscreenchange', () => {
  for (const div of document.querySelectorAll('.avlab-chart')) {
    const whole = document.fullscreenElement === div;
    if (whole || div.wasWhole) {
      const height = whole ? 0.94 * window.innerHeight : div.ownHeight;
      window.Plotly.relayout(div, { height, width: whole ? 0.96 * window.innerWidth : null });
    }
    div.wasWhole = whole;
  }
});
const ONE_ROW = 30;  // pixels of a legend of one row
const PHONE = 640;  // widest page where charts stand under each other

const visible = (div) => {
  const box = div.getBoundingClientRect();
  return box.bottom > -200 && box.top < window.innerHeight + 200;
};

export default function draw({ data, parentElement }) {
  let div = parentElement.querySelector('.avlab-chart');
  if (!div) {
    div = document.createElement('div');
    div.className = 'avlab-chart';
    div.setAttribute('role', 'group');
    div.tabIndex = 0;
    parentElement.appendChild(div);
    new IntersectionObserver((entries) => {
      const pending = div.pending;
      if (pending && entries.some((entry) => entry.isIntersecting)) {
        div.pending = null;
        draw(pending);
      }
    }, { rootMargin: '200px' }).observe(div);
    new ResizeObserver(() => {
      if (window.Plotly && div.data && div.offsetWidth) window.Plotly.Plots.resize(div);
    }).observe(parentElement);
  }
  div.dataset.key = data.key;
  div.setAttribute('aria-label', data.alt);
  const style = getComputedStyle(parentElement);
  const look = style.getPropertyValue('--st-text-color') + style.getPropertyValue('--st-background-color');
  if (div.drawn === data.figure && div.look === look) return;
  if (div.data && !visible(div)) {  // drawn once it is scrolled to
    div.pending = { data, parentElement };
    return;
  }
  div.drawn = data.figure;
  div.look = look;
  const parsed = JSON.parse(data.figure);
  const own = parsed.layout.height || 260;
  div.ownHeight = parsed.layout.height = own + (div.legendRows || 0);
  if (document.fullscreenElement === div) parsed.layout.height = 0.94 * window.innerHeight;
  div.style.minHeight = parsed.layout.height + 'px';
  load().then((Plotly) => {
    if (!div.data) div.textContent = '';
    const figure = themed(parsed, style);
    if (TOUCH) figure.layout.dragmode = false;
    Plotly.react(div, figure.data, figure.layout, OPTIONS).then(() => {
      // on a phone, what a legend of several rows takes is added, so that the plot keeps its height
      const legend = window.innerWidth <= PHONE && div._fullLayout.showlegend && div._fullLayout.legend;
      const rows = Math.round(Math.max(0, (legend && legend._effHeight || 0) - ONE_ROW));
      if (rows === (div.legendRows || 0)) return;
      div.legendRows = rows;
      div.style.minHeight = own + rows + 'px';
      Plotly.relayout(div, { height: own + rows });
    });
  }, (address) => {
    div.drawn = null;
    if (!div.data) div.textContent = `This chart cannot be drawn: ${address} does not answer. Reload the page; behind a `
      + 'proxy, let it pass on that address too.';
  });
}
