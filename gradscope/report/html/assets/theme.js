// Runs before the first paint: the chosen theme, and word that scripts run at all.
document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("gradscope-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* storage is closed to this page: the system's preference stands */ }
