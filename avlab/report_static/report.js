// Draws the figures of a report, which stand in the page as JSON, in the page's colours.
for (const [id, figure] of Object.entries(JSON.parse(document.getElementById('figures').textContent))) {
  const text = getComputedStyle(document.body).color;
  Object.assign(figure.layout, { paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)' });
  figure.layout.font = { size: 12, ...figure.layout.font, color: text, family: 'system-ui, sans-serif' };
  for (const name of Object.keys(figure.layout).filter((name) => /^[xy]axis\d*$/.test(name)))
    figure.layout[name] = { gridcolor: 'rgba(128,138,150,0.18)', linecolor: 'rgba(128,138,150,0.5)', zeroline: false,
      ...figure.layout[name] };
  Plotly.newPlot(id, figure.data, figure.layout, { responsive: true, displaylogo: false, showSendToCloud: false });
}
