// Arrow keys step through the tour: they press the page's own buttons.

const press = (name) => {
  const button = document.querySelector(`.st-key-tour-${name} button`);
  if (button && !button.disabled) button.click();
};

export default function keys() {
  if (window.avlabTourKeys) return;
  window.avlabTourKeys = true;
  document.addEventListener('keydown', (event) => {
    const busy = event.target.closest('input, textarea, [role=slider], [role=radiogroup], [role=option], .avlab-chart');
    if (busy || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'ArrowRight' || event.key === 'PageDown') press('next');
    if (event.key === 'ArrowLeft' || event.key === 'PageUp') press('previous');
  });
}
