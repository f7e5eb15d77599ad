// Loads plotly once a browser tab, from the dashboard's own server. chart.js and preload.js begin with this text.
const load = () => window.avlabPlotly || (window.avlabPlotly = new Promise((done, failed) => {
  const script = document.createElement('script');
  // below whatever prefix the dashboard stands under: its own scripts are there too
  const own = document.querySelector('script[src*="static/js/"]');
  const home = own ? new URL('../../', own.src) : new URL('.', document.baseURI);
  script.src = new URL('avlab/plotly.min.js', home).href;
  script.onload = () => done(window.Plotly);
  script.onerror = () => { window.avlabPlotly = null; failed(script.src); };  // the next tick tries again
  document.head.appendChild(script);
}));
