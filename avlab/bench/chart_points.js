// For the measure of the dashboard's start: what a page shows of the throughput chart, and whether it has no run.

// the points on the throughput chart, as text; "" for none
window.avlabPoints = () => {
  const chart = document.querySelector(".avlab-chart[data-key='throughput']");
  const points = (chart?.calcdata?.[0] ?? []).filter((point) => Number.isFinite(point.y));
  return points.map((point) => `${point.x} ${point.y}`).join();
};

window.avlabNothing = () => document.body.innerText.includes('Nothing was recorded yet');

// whether there are points, and others than before
window.avlabNews = (before) => ![before, ''].includes(window.avlabPoints());
