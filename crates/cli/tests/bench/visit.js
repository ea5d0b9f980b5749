visit("!!document.querySelector('#data')", async () => {
  // What is drawn is what was measured: every point, at its place on axes that the points themselves tell.
  const drawn = await ask("[...document.querySelectorAll('path[data-seconds]')].map((c) => ({ series: c.dataset.series, direction: c.dataset.direction, size: Number(c.dataset.size), seconds: Number(c.dataset.seconds), x: c.transform.baseVal[0].matrix.e, y: c.transform.baseVal[0].matrix.f }))");
  const report = JSON.parse(await ask("document.getElementById('data').textContent"));
  const measured = report.series.flatMap((series, n) => series.samples.map((s) => [n, s.direction, s.size_bytes, s.seconds].join()));
  expect(drawn.length === measured.length && drawn.length > 0, `${drawn.length} points for ${measured.length} samples`);
  const points = new Set(drawn.map((p) => [p.series, p.direction, p.size, p.seconds].join()));
  expect(measured.every((sample) => points.has(sample)), "a sample is not drawn");
  for (const direction of ["write", "read"]) {
    const own = drawn.filter((p) => p.direction === direction);
    const fit = (at, of, what) => {
      const [low, high] = [own.reduce((a, b) => (of(b) < of(a) ? b : a)), own.reduce((a, b) => (of(b) > of(a) ? b : a))];
      const place = (p) => at(low) + ((of(p) - of(low)) / (of(high) - of(low))) * (at(high) - at(low));
      expect(own.every((p) => Math.abs(place(p) - at(p)) < 0.01), `${direction}: ${what} is not where it should be`);
    };
    fit((p) => p.x, (p) => Math.log(p.size), "a size");
    fit((p) => p.y, (p) => p.size / p.seconds, "a speed");
  }
  expect((await ask("document.querySelectorAll('svg').length")) >= 4, "there are plots");
  expect((await ask("document.querySelectorAll('svg polyline').length")) >= 2, "lines go through the points");
  const back = () => ask("getComputedStyle(document.body).backgroundColor");
  const ink = () => ask("getComputedStyle(document.querySelector('svg text')).fill");
  const [light, dark] = [await back(), await ink()];
  await ask("document.getElementById('theme').click()");
  expect((await back()) !== light && (await ink()) !== dark, "the button turns it dark, text too");
  await ask("document.getElementById('theme').click()");
  expect((await back()) === light, "and back");
  await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] });
  await ask("delete document.documentElement.dataset.theme");
  expect((await back()) !== light, "the system's dark is followed");
  await call("Emulation.setEmulatedMedia", { media: "print", features: [] });
  expect((await ask("getComputedStyle(document.getElementById('theme')).display")) === "none", "paper has no buttons");
  await call("Emulation.setEmulatedMedia", { media: "", features: [] });
  await layout(report.benchmark.replace(/\W+/g, "-"));
});
