visit("!!document.querySelector('canvas')?.dataset.scale", async () => {
  const box = () => ask("(() => { const c = document.getElementById('map'); c.scrollIntoView({ block: 'center' }); const b = c.getBoundingClientRect(); return { x: b.x, y: b.y, width: b.width, height: b.height }; })()");
  let map = await box();
  const scale = () => ask("Number(document.getElementById('map').dataset.scale)");
  const first = await scale();
  await call("Input.dispatchMouseEvent", { type: "mouseMoved", x: map.x + first / 2, y: map.y + first / 2 });
  const told = await ask("document.getElementById('told').textContent");
  expect(/^band 0, from byte 0 of the disk: .*stored/.test(told), "hover told: " + told);
  await call("Input.dispatchMouseEvent", { type: "mouseWheel", x: map.x + 10, y: map.y + 10, deltaX: 0, deltaY: -120 });
  await sleep(100);
  const near = await scale();
  expect(near > first, `the wheel zooms: ${first} to ${near}`);
  await ask("document.getElementById('all').click()");
  expect(Math.abs((await scale()) - first) < 0.01, "all of it is shown again");
  await ask("document.getElementById('in').click()");
  expect((await scale()) > first, "the button zooms");
  await ask("document.getElementById('all').click()");

  const painted = () => ask("(() => { const c = document.getElementById('map'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add([d[i], d[i + 1], d[i + 2]].join()); return [...seen]; })()");
  const back = () => ask("getComputedStyle(document.body).backgroundColor");
  expect((await painted()).length >= 3, "cells have colours of their own");
  const light = await back();
  await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] });
  await sleep(100);
  const dark = await back();
  expect(light !== dark, "dark is another colour than light: " + light);
  expect((await painted()).length >= 3, "cells are drawn in the dark");

  await layout("report");
  map = await box();
  expect(map.width > 300 && map.height > 200, "the map has room at 400 px: " + JSON.stringify(map));
});
