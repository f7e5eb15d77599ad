// Loads plotly once a browser tab, from the dashboard's own server. chart.js and preload.js begin with this text.
const load = () => window.avlabPlotly || (window.avlabPlotly = new Promise((done, failed) => {
  const script = document.createElement('script');
  script.src = '/avlab/plotly.min.js';
  script.onload = () => done(window.Plotly);
  script.onerror = () => { window.avlabPlotly = null; failed(); };  // the next tick tries again
  document.head.appendChild(script);
}));
