(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("map"), told = document.getElementById("told");
  const paint = canvas.getContext("2d");
  const cells = new Map(data.cells.map((cell) => [cell[0], cell]));
  // Cells stand in lines from left to right; the view is a scale and the place of the first cell's corner.
  let view = { scale: 0, x: 0, y: 0 }, columns = 1, pointed = -1, dragged = null;

  const words = (bytes) => {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0, shown = bytes;
    while (shown >= 1024 && unit < units.length - 1) { shown /= 1024; unit += 1; }
    return (unit ? shown.toFixed(1) : shown) + " " + units[unit];
  };
  const bytesOf = (at) => Math.min(data.cell, data.disk - at * data.cell);
  const fill = (at) => {
    const cell = cells.get(at);
    if (!cell) return "absent";
    if (cell[2] === 0) return "full";
    return cell[2] >= Math.min(bytesOf(at), cell[4] * (data.cell / data.units)) ? "free" : "partly";
  };
  const rows = () => Math.ceil(data.count / columns);
  const clamp = () => {
    const box = canvas.getBoundingClientRect();
    view.x = Math.min(0, Math.max(view.x, box.width - columns * view.scale));
    view.y = Math.min(0, Math.max(view.y, box.height - rows() * view.scale));
  };
  const least = () => {
    const box = canvas.getBoundingClientRect();
    return Math.min(box.width / columns, box.height / rows());
  };
  const showAll = () => {
    const box = canvas.getBoundingClientRect();
    columns = Math.max(1, Math.min(data.count, Math.ceil(Math.sqrt((data.count * box.width) / box.height))));
    view = { scale: least(), x: 0, y: 0 };
    draw();
  };
  const zoom = (factor, x, y) => {
    const scale = Math.min(Math.max(view.scale * factor, least()), Math.max(64, least() * 8));
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    clamp();
    draw();
  };
  const draw = () => {
    const box = canvas.getBoundingClientRect(), dots = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(box.width * dots));
    canvas.height = Math.max(1, Math.round(box.height * dots));
    paint.setTransform(dots, 0, 0, dots, 0, 0);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue("--" + name).trim();
    const colors = { absent: color("absent"), full: color("full"), partly: color("partly"), free: color("free") };
    const gap = view.scale > 6 ? 1 : 0;
    const top = Math.max(0, Math.floor(-view.y / view.scale));
    const bottom = Math.min(rows(), Math.ceil((box.height - view.y) / view.scale));
    for (let row = top; row < bottom; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const at = row * columns + column;
        if (at >= data.count) break;
        const x = view.x + column * view.scale, y = view.y + row * view.scale;
        if (x + view.scale < 0 || x > box.width) continue;
        paint.fillStyle = colors[fill(at)];
        paint.fillRect(x, y, Math.max(view.scale - gap, 0.5), Math.max(view.scale - gap, 0.5));
        if (at === pointed) {
          paint.strokeStyle = color("text");
          paint.lineWidth = 2;
          paint.strokeRect(x + 1, y + 1, Math.max(view.scale - gap - 2, 1), Math.max(view.scale - gap - 2, 1));
        }
      }
    }
    canvas.dataset.scale = String(view.scale);
  };
  const tell = (at) => {
    pointed = at >= 0 && at < data.count ? at : -1;
    if (pointed < 0) return;
    const cell = cells.get(at) || [at, 0, 0, 0, 0];
    const first = at * data.units, last = Math.min(first + data.units, Math.ceil(data.disk / (data.cell / data.units))) - 1;
    const name = first === last ? `${data.word} ${first.toString(16)}` : `${data.word}s ${first.toString(16)} to ${last.toString(16)}`;
    const state = { absent: "no storage", full: "in use", partly: "partly free", free: "wholly free" }[fill(at)];
    const from = `from byte ${(at * data.cell).toLocaleString("en")} of the disk`;
    told.textContent = `${name}, ${from}: ${state}; ${words(cell[1])} stored, ${words(cell[2])} free, ${words(cell[3])} would return`;
    draw();
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = place(event);
    zoom(event.deltaY < 0 ? 1.25 : 0.8, x, y);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    dragged = { ...place(event), from: { ...view } };
  });
  canvas.addEventListener("pointerup", () => { dragged = null; });
  canvas.addEventListener("pointercancel", () => { dragged = null; });
  canvas.addEventListener("pointermove", (event) => {
    const { x, y } = place(event);
    if (dragged) {
      view.x = dragged.from.x + x - dragged.x;
      view.y = dragged.from.y + y - dragged.y;
      clamp();
      draw();
      return;
    }
    const column = Math.floor((x - view.x) / view.scale), row = Math.floor((y - view.y) / view.scale);
    tell(column >= 0 && column < columns ? row * columns + column : -1);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    tell(Math.max(0, Math.min(data.count - 1, pointed + step)));
  });
  const middle = (factor) => () => {
    const box = canvas.getBoundingClientRect();
    zoom(factor, box.width / 2, box.height / 2);
  };
  document.getElementById("in").addEventListener("click", middle(1.6));
  document.getElementById("out").addEventListener("click", middle(1 / 1.6));
  document.getElementById("all").addEventListener("click", showAll);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("resize", showAll);
  showAll();
})();
