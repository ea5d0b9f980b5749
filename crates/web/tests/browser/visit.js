import { readFileSync } from "node:fs";
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
  await ask(`window.old = true; document.querySelector(${JSON.stringify(selector)}).click()`);
  await until(`!window.old && (${what})`);
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
const look = async (name) => {
  for (const width of [1200, 320]) {
    for (const scheme of ["light", "dark"]) {
      await view(width, 800);
      await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
      for (const flaw of [...await odd(), ...await judged()]) wrong.push(`${name}, ${width} pixels, ${scheme}: ${flaw}`);
      const back = await ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0)");
      expect(scheme === "dark" ? back < 150 : back > 600, `${name} is ${scheme}: ${back}`);
      const folder = process.env.BANDSAW_SCREENSHOTS;
      if (!folder) continue;
      const { data } = await call("Page.captureScreenshot", { captureBeyondViewport: true });
      writeFileSync(`${folder}/web-${name}-${width}-${scheme}.png`, Buffer.from(data, "base64"));
    }
  }
  await view(1000, 800);
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
  await ask("window.old = true; " + drop);
  await until("!window.old && document.querySelector('#upload:not([hidden])')");
  await follow("a[href='log']", "document.body.textContent.includes('dropped.txt')");
  for (const page of ["sizes", "hex", "find"]) {
    await follow("header a", "document.querySelector('#q')");
    await follow("a[href*='docs.dmg']", "document.title.startsWith('Image ')");
    await follow("a[href^='folder?']", "document.querySelector('nav.crumbs')");
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
  // Everything is reached by the keyboard: the first stop leads to the contents.
  await call("Input.dispatchKeyEvent", { type: "keyDown", key: "Tab", code: "Tab", windowsVirtualKeyCode: 9 });
  expect(await ask("document.activeElement.className === 'skip'"), "the first stop is not the way to the contents");
});
