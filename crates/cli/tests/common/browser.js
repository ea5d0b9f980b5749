// Drives Chromium by its own protocol over a pipe, so that nothing but node and the browser is needed.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [browser, page, profile] = process.argv.slice(2);
// A file, or the address of a server.
const address = page.includes("://") ? page : pathToFileURL(page).href;
const own = address.startsWith("file:") ? "file:" : new URL(address).origin + "/";
const options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"];
const child = spawn(browser, options, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const [input, output] = [child.stdio[3], child.stdio[4]];
const end = (code) => { child.kill("SIGKILL"); process.exit(code); };
const patience = Number(process.env.BANDSAW_BROWSER_SECONDS ?? 60);
setTimeout(() => { console.error(`no answer within ${patience} s`); end(1); }, 1000 * patience).unref();

let next = 1, held = "";
const waiting = new Map(), wrong = [];
output.on("data", (bytes) => {
  held += bytes.toString();
  for (let cut = held.indexOf("\0"); cut >= 0; cut = held.indexOf("\0")) {
    const message = JSON.parse(held.slice(0, cut));
    held = held.slice(cut + 1);
    if (message.id) { waiting.get(message.id)(message); waiting.delete(message.id); }
    if (message.method === "Runtime.exceptionThrown") wrong.push("exception: " + JSON.stringify(message.params));
    if (message.method === "Runtime.consoleAPICalled" && message.params.type === "error") wrong.push("console: " + JSON.stringify(message.params.args));
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") wrong.push(`log: ${message.params.entry.text} ${message.params.entry.url ?? ""}`);
    // The viewer for documents is a part of the browser.
    const foreign = (url) => !url.startsWith(own) && !url.startsWith("chrome-extension://") && !url.startsWith("data:");
    if (message.method === "Network.requestWillBeSent" && foreign(message.params.request.url)) wrong.push("fetched " + message.params.request.url);
  }
});
let session;
const call = (method, params = {}) => new Promise((resolve, reject) => {
  const id = next++;
  waiting.set(id, (answer) => (answer.error ? reject(new Error(method + ": " + answer.error.message)) : resolve(answer.result)));
  input.write(JSON.stringify({ id, method, params, sessionId: session }) + "\0");
});
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const ask = async (expression) => {
  const answer = await call("Runtime.evaluate", { expression, returnByValue: true });
  if (answer.exceptionDetails) throw new Error(JSON.stringify(answer.exceptionDetails));
  return answer.result.value;
};
const expect = (held, what) => { if (!held) wrong.push(what); };

const view = (width, height) => call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
// Opens the page, waits until `ready` holds in it, goes through `steps`, and says what was wrong.
const visit = async (ready, steps) => {
  try {
    const { targetId } = await call("Target.createTarget", { url: "about:blank" });
    session = (await call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await call(domain + ".enable");
    await view(1000, 800);
    await call("Page.navigate", { url: address });
    for (let tries = 0; tries < 100 && !(await ask(`document.readyState === 'complete' && (${ready})`)); tries += 1) await sleep(50);
    await steps();
  } catch (error) {
    wrong.push(String(error));
  }
  console.log(wrong.length ? wrong.join("\n") : "sound");
  end(wrong.length ? 1 : 0);
};
// What is wrong with the page as it is laid out: elements wider than the window outside of a box that scrolls, labels of a plot
// that overlap each other or are cut off, series that look alike or have another look in another plot.
const flaws = () => ask(`(() => {
  const wrong = [], looks = new Map();
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is " + document.documentElement.scrollWidth + " wide");
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (element.parentElement.closest(".wide") || box.width === 0) continue;
    if (box.left < -1 || box.right > innerWidth + 1) wrong.push("past the window: " + element.tagName + " " + element.textContent.slice(0, 40));
  }
  for (const box of document.querySelectorAll(".wide")) {
    if (box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "auto") wrong.push("a wide box does not scroll");
  }
  for (const plot of document.querySelectorAll("svg")) {
    const frame = plot.getBoundingClientRect();
    const boxes = [...plot.querySelectorAll("text, .key")].map((e) => [e.textContent || "a mark of the legend", e.getBoundingClientRect()]);
    boxes.forEach(([text, box], n) => {
      if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom) wrong.push(plot.id + ": cut off: " + text);
      for (const [other, place] of boxes.slice(0, n)) if (meet(box, place)) wrong.push(plot.id + ": " + text + " overlaps " + other);
    });
    const keys = [...plot.querySelectorAll(".key")].map((key) => [key.nextElementSibling.textContent, key.innerHTML, key.lastElementChild]);
    if (keys.length === 0) wrong.push(plot.id + ": no legend");
    if (new Set(keys.map(([, symbol]) => symbol)).size !== keys.length) wrong.push(plot.id + ": two entries of the legend look alike");
    const of = (mark) => [mark.getAttribute("d"), mark.getAttribute("fill"), mark.getAttribute("stroke")].join();
    const explained = new Set(keys.map(([, , mark]) => of(mark)));
    for (const mark of plot.querySelectorAll(".point, .reference")) if (!explained.has(of(mark))) wrong.push(plot.id + ": a mark is not in the legend");
    for (const [text, , mark] of keys) {
      if (looks.has(text) && looks.get(text) !== of(mark)) wrong.push(text + ": looks unlike itself elsewhere");
      looks.set(text, of(mark));
    }
  }
  return wrong;
})()`);
// Lays the page out at 1200 and 400 pixels, in the light and in the dark, and says what is wrong with it. Pictures of it are kept in
// the folder BANDSAW_SCREENSHOTS, where that is set.
const layout = async (name) => {
  for (const width of [1200, 400]) {
    for (const scheme of ["light", "dark"]) {
      await view(width, 800);
      await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
      await sleep(200);
      for (const flaw of await flaws()) wrong.push(`${width} pixels, ${scheme}: ${flaw}`);
      const back = await ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0)");
      expect(scheme === "dark" ? back < 150 : back > 600, `the page is ${scheme}: ${back}`);
      const folder = process.env.BANDSAW_SCREENSHOTS;
      if (!folder) continue;
      const { cssContentSize } = await call("Page.getLayoutMetrics");
      const { data } = await call("Page.captureScreenshot", { captureBeyondViewport: true, clip: { ...cssContentSize, width, scale: 1 } });
      writeFileSync(`${folder}/${name}-${width}-${scheme}.png`, Buffer.from(data, "base64"));
    }
  }
};
