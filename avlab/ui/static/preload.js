// Fetches plotly while a page is still drawn. Stands behind plotly.js.
export default function () { load().catch(() => {}); }
