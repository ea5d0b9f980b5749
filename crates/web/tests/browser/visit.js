import { readFileSync } from "node:fs";
import { inflateSync } from "node:zlib";
// The rules of axe-core, if the variable names its script.
const axe = process.env.BANDSAW_AXE ? readFileSync(process.env.BANDSAW_AXE, "utf8") : "";
const judged = async () => {
  if (!axe) return [];
  await call("Runtime.evaluate", { expression: axe });
  const expression = `axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations.flatMap((rule) =>
    rule.nodes.map((node) => "axe: " + rule.id + ": " + node.html.slice(0, 200))))`;
  const answer = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (answer.exceptionDetails) throw new Error(JSON.stringify(answer.exceptionDetails));
  return answer.result.value;
};
// Waits until the page says `what`.
const until = async (what) => {
  for (let tries = 0; tries < 200; tries += 1) {
    if (await ask(`document.readyState === 'complete' && (${what})`).catch(() => false)) return;
    await sleep(50);
  }
  wrong.push("never: " + what);
};
const follow = async (selector, what) => {
  await ask(`window.left = true; document.querySelector(${JSON.stringify(selector)}).click()`);
  await until(`!window.left && (${what})`);
};
// Flaws of the page as it is laid out, and for those who do not see it.
const odd = () => ask(`(() => {
  const wrong = [];
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is " + document.documentElement.scrollWidth + " wide");
  if (!document.documentElement.lang) wrong.push("no language");
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one heading");
  if (!document.querySelector("main")) wrong.push("no main part");
  for (const field of document.querySelectorAll("input:not([type=hidden])")) if (field.labels.length === 0) wrong.push("a field without a label");
  for (const picture of document.querySelectorAll("img")) if (!picture.alt) wrong.push("a picture without words");
  for (const nav of document.querySelectorAll("nav")) if (!nav.getAttribute("aria-label")) wrong.push("a nav without a name");
  for (const link of document.querySelectorAll("a, button")) if (!link.textContent.trim() && !link.getAttribute("aria-label")) wrong.push("a link without words");
  return wrong;
})()`);
// The places of all elements, from the left and top of the page.
const boxes = () => ask(`[...document.body.querySelectorAll("*")].map((e) => {
  const box = e.getBoundingClientRect();
  return [e.tagName, box.left + scrollX, box.top + scrollY, box.width, box.height];
})`);
// The pixels of a picture of the window at an eighth of its size: rows of [red, green, blue].
const pixels = async (width, height) => {
  const clip = { x: 0, y: 0, width, height, scale: 0.125 };
  const { data } = await call("Page.captureScreenshot", { clip });
  const png = Buffer.from(data, "base64"), parts = [];
  let columns = 0, rows = 0, bytes = 0;
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at), kind = png.toString("latin1", at + 4, at + 8), part = png.subarray(at + 8, at + 8 + length);
    if (kind === "IHDR") [columns, rows, bytes] = [part.readUInt32BE(0), part.readUInt32BE(4), part[9] === 6 ? 4 : 3];
    if (kind === "IDAT") parts.push(part);
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(parts)), line = columns * bytes, all = [];
  let above = Buffer.alloc(line);
  for (let row = 0; row < rows; row += 1) {
    const filter = raw[row * (line + 1)], current = Buffer.from(raw.subarray(row * (line + 1) + 1, (row + 1) * (line + 1)));
    for (let at = 0; at < line; at += 1) {
      const left = at >= bytes ? current[at - bytes] : 0, up = above[at], corner = at >= bytes ? above[at - bytes] : 0;
      const guess = left + up - corner, far = [left, up, corner].map((value) => Math.abs(guess - value));
      const paeth = far[0] <= far[1] && far[0] <= far[2] ? left : far[1] <= far[2] ? up : corner;
      current[at] += [0, left, up, (left + up) >> 1, paeth][filter];
    }
    for (let at = 0; at < line; at += bytes) all.push([current[at], current[at + 1], current[at + 2]]);
    above = current;
  }
  return all;
};
const apart = (one, other) => Math.max(...one.map((value, at) => Math.abs(value - other[at])));
// The share of pixels that differ by more than a tolerance.
const differing = (one, other) => one.filter((pixel, at) => apart(pixel, other[at] ?? [-999, 0, 0]) > 24).length / one.length;
// The pixels that are not of the background, which is that of the corner at the right.
const inked = (all, width) => all.map((pixel) => apart(pixel, all[Math.floor(width / 8) - 1]) > 40);
const look = async (name) => {
  for (const width of [320, 1200, 2560]) {
    const seen = {};
    for (const scheme of ["light", "dark"]) {
      await view(width, 800);
      await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
      const where = `${name}, ${width} pixels, ${scheme}`;
      // Contrast depends on the scheme, and what is shown on narrow pages; wide ones show the same.
      const rules = width === 1200 || (width === 320 && scheme === "light") ? await judged() : [];
      for (const flaw of [...await odd(), ...rules]) wrong.push(`${where}: ${flaw}`);
      const back = await ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0)");
      expect(scheme === "dark" ? back < 150 : back > 600, `${name} is ${scheme}: ${back}`);
      // Two pictures of a page at rest are the same.
      const picture = await pixels(width, 800);
      const shift = differing(picture, await pixels(width, 800));
      expect(shift < 0.01, `${where}: ${(100 * shift).toFixed(1)} % of the picture changes`);
      seen[scheme] = { boxes: await boxes(), ink: inked(picture, width), picture };
      const kept = process.env.BANDSAW_SCREENSHOTS;
      if (!kept) continue;
      const { data } = await call("Page.captureScreenshot", { captureBeyondViewport: true });
      writeFileSync(`${kept}/web-${name}-${width}-${scheme}.png`, Buffer.from(data, "base64"));
    }
    // Light and dark differ in colors only.
    const [light, dark] = [seen.light, seen.dark];
    expect(light.boxes.length === dark.boxes.length, `${name}, ${width}: another number of elements in the dark`);
    const moved = light.boxes.find((box, at) => box.slice(1).some((value, side) => Math.abs(value - dark.boxes[at][side + 1]) > 1));
    expect(!moved, `${name}, ${width}: moves in the dark: ${moved}`);
    const other = light.ink.filter((is, at) => is !== dark.ink[at]).length / light.ink.length;
    expect(other < 0.08, `${name}, ${width}: ${(100 * other).toFixed(1)} % is drawn in one scheme only`);
    expect(light.ink.some((is) => is) && differing(light.picture, dark.picture) > 0.5, `${name}, ${width}: nothing is drawn`);
  }
  await view(1000, 800);
  await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "light" }] });
};
const home = async () => follow("header a", "document.querySelector('#q')");
const image = async (name) => {
  await home();
  await follow(`a[href*='${name}']`, "document.title.startsWith('Image ')");
};
const folder = async (name) => {
  await image(name);
  await follow("a[href^='folder?']", "document.querySelector('nav.crumbs')");
};
await visit("document.querySelector('main')", async () => {
  expect(!(await ask("location.href")).includes("token"), "the token is in the address bar");
  expect((await ask("document.cookie")) === "", "a script sees the cookie");
  await look("images");
  await follow("a[href*='docs.dmg']", "document.title.startsWith('Image ')");
  await look("image");
  await follow("a[href^='folder?']", "document.querySelector('nav.crumbs')");
  await look("folder");
  await follow("a[href*='script']", "document.querySelector('pre')");
  expect((await ask("document.querySelector('pre').textContent")) === "<script>alert(1)</script>", "text is shown as it is");
  await ask("history.back()");
  await until("document.querySelector('a[href*=\"picture.png\"]')");
  await follow("a[href*='picture.png']", "document.querySelector('img.preview')");
  await until("document.querySelector('img.preview').naturalWidth === 1");
  await look("file");
  if (process.env.BANDSAW_VISIT === "short") return;
  await follow("header a", "document.querySelector('#q')");
  await follow("a[href*='a.sparsebundle']", "document.title.startsWith('Image ')");
  await follow("a[href^='space?']", "document.querySelector('svg.map rect')");
  await look("space");
  await follow("nav a[href^='image?']", "document.querySelector('form[action^=\"check?\"]')");
  await follow("form[action^='check?'] button", "document.querySelector('p.good')");
  await look("check");
  await follow("nav a[href^='image?']", "document.querySelector('a[href^=\"changes?\"]')");
  await follow("a[href^='changes?']", "document.querySelector('#zeros')");
  await ask("document.querySelector('#name').value = 'before'; document.querySelector('#confirm-create').click()");
  await ask("document.querySelector('#name').form.requestSubmit()");
  await until("document.querySelector('p.good')");
  await look("snapshot");
  await follow("a[href^='changes?']", "document.querySelector('#confirm-delete0')");
  await look("changes");
  await ask("document.querySelector('#zeros').form.requestSubmit()");
  await until("document.querySelector('#confirm-apply')");
  await look("plan");
  await ask("document.querySelector('#confirm-apply').click(); document.querySelector('#confirm-apply').form.requestSubmit()");
  await until("document.querySelector('p.good') && !document.querySelector('#confirm-apply')");
  await look("change");
  await follow("a[href='log']", "document.querySelector('td') && document.title.startsWith('Log')");
  await look("log");
  // A file is dropped on the list.
  await follow("header a", "document.querySelector('#upload:not([hidden])')");
  await look("upload");
  const drop = `(() => {
    const data = new DataTransfer();
    data.items.add(new File(["dropped contents"], "dropped.txt"));
    document.getElementById("upload").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    return true;
  })()`;
  await ask("window.left = true; " + drop);
  await until("!window.left && document.querySelector('#upload:not([hidden])')");
  await follow("a[href='log']", "document.body.textContent.includes('dropped.txt')");
  for (const page of ["sizes", "hex", "find"]) {
    await folder("docs.dmg");
    if (page === "sizes") await follow("a[href^='sizes?']", "document.querySelector('svg')");
    if (page === "hex") {
      await follow("a[href*='hello.txt']", "document.querySelector('pre')");
      await follow("a[href^='hex?']", "document.querySelector('pre.hex')");
    }
    if (page === "find") {
      await ask("document.querySelector('input[name=q]').value = 'txt'; document.querySelector('input[name=q]').form.requestSubmit()");
      await until("document.body.textContent.includes('found')");
    }
    await look(page);
  }
  // Sound is played from the middle, by a range request.
  await folder("docs.dmg");
  await follow("a[href*='tone.wav']", "document.querySelector('audio')");
  await until("document.querySelector('audio').duration > 1.9");
  await ask("document.querySelector('audio').currentTime = 1.5");
  await until("!document.querySelector('audio').seeking && document.querySelector('audio').currentTime > 1.4");
  expect((await ask("document.querySelector('audio').error")) === null, "the sound is not played");
  await look("sound");
  // A document is shown by the browser itself, in a frame.
  await folder("docs.dmg");
  await follow("a[href*='letter.pdf']", "document.querySelector('iframe.document')");
  const red = async () => (await pixels(1000, 800)).filter(([r, g, b]) => r > 200 && g < 60 && b < 60).length;
  await ask("document.querySelector('iframe.document').scrollIntoView()");
  let drawn = 0;
  for (let tries = 0; tries < 100 && drawn === 0; tries += 1) {
    await sleep(200);
    const { data } = await call("Page.captureScreenshot", {});
    drawn = data.length && await red();
  }
  expect(drawn > 0, "the document is not shown");
  for (const flaw of await judged()) wrong.push("document: " + flaw);
  // A binary property list is text.
  await folder("docs.dmg");
  await follow("a[href*='binary.plist']", "document.querySelector('pre')");
  expect((await ask("document.querySelector('pre').textContent")).includes("<key>Name</key>"), "the list is not text");
  // Names from right to left, and with marks: in their own direction, and as wide as their letters.
  await folder("docs.dmg");
  const names = await ask(`[...document.querySelectorAll("td bdi")].map((e) => [e.textContent, e.getBoundingClientRect().width])`);
  const hebrew = names.find(([name]) => name.startsWith("\u05e9")), accent = names.find(([name]) => name.normalize("NFC") === "\u00e9.txt");
  expect(hebrew && hebrew[1] > 20 && accent && accent[1] < 60, "names are not as wide as they should be: " + JSON.stringify(names));
  await follow("a[href*='%D7%A9']", "document.querySelector('pre')");
  expect((await ask("document.querySelector('h1 bdi').textContent")).startsWith("\u05e9"), "the name is another one");
  await look("right-to-left");
  // The states of a volume: versions of a file, differences, and a restore.
  await image("apfs.img");
  await look("snapshots");
  await follow("a[href^='time?']", "document.querySelector('#old')");
  await look("timeline");
  await ask("document.querySelector('#old').selectedIndex = 0; document.querySelector('#new').selectedIndex = 1; document.querySelector('#old').form.requestSubmit(); window.left = true");
  await until("!window.left && document.title.startsWith('Differences')");
  expect((await ask("document.body.textContent")).includes("changed: contents"), "the change is not shown");
  await look("differences");
  await folder("apfs.img");
  await follow("a[href*='hello.txt']", "document.querySelector('pre')");
  await follow("a[href^='time?']", "document.querySelectorAll('td a[href^=\"file?\"]').length === 3");
  await look("versions");
  await follow("a[href*='s=first']", "document.querySelector('pre').textContent === 'version 1'");
  await look("version");
  await ask("document.querySelector('form[action^=\"restore?\"] input[type=checkbox]').click(); document.querySelector('form[action^=\"restore?\"]').requestSubmit()");
  await until("document.querySelector('p.good')");
  await look("restore");
  // A snapshot of a bundle, and the results of a benchmark.
  await image("a.sparsebundle");
  await follow("a[href*='b=before']", "document.querySelector('h1').textContent.endsWith('@before')");
  await look("bundle-snapshot");
  await follow("a[href^='folder?']", "document.querySelector('nav.crumbs')");
  await follow("header a[href='benchmarks']", "document.querySelector('td')");
  await look("benchmarks");
  await follow("td a", "document.querySelector('img.plot')");
  await until("document.querySelector('img.plot').naturalWidth > 100");
  await look("benchmark");
  // A path that is typed, and one that is refused.
  await home();
  await ask("document.querySelector('#a').value = 'docs.dmg'; document.querySelector('#a').form.requestSubmit()");
  await until("document.title.startsWith('Image ')");
  await home();
  await ask("document.querySelector('#a').value = '/etc/passwd'; document.querySelector('#a').form.requestSubmit()");
  await until("document.title.startsWith('Refused')");
  // The browser logs the status of the refusal.
  await sleep(200);
  const refusal = wrong.findIndex((one) => one.startsWith("log: ") && one.includes(" 404 ") && one.includes("/go?a="));
  expect(refusal >= 0, "the refusal has another status");
  if (refusal >= 0) wrong.splice(refusal, 1);
  await look("refused");
  await ask("document.querySelector('a').click()");
  await until("document.querySelector('#q')");
  // Everything is reached by the keyboard: the first stop leads to the contents.
  await call("Input.dispatchKeyEvent", { type: "keyDown", key: "Tab", code: "Tab", windowsVirtualKeyCode: 9 });
  expect(await ask("document.activeElement.className === 'skip'"), "the first stop is not the way to the contents");
});
