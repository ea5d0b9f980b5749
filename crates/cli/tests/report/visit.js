// Drives Chromium by its own protocol over a pipe, so that nothing but node and the browser is needed.
import { spawn } from "node:child_process";
import { pathToFileURL } from "node:url";

const [browser, page, profile] = process.argv.slice(2);
const options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"];
const child = spawn(browser, options, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const [input, output] = [child.stdio[3], child.stdio[4]];
const end = (code) => { child.kill("SIGKILL"); process.exit(code); };
setTimeout(() => { console.error("no answer within a minute"); end(1); }, 60000).unref();

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
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") wrong.push("log: " + message.params.entry.text);
    if (message.method === "Network.requestWillBeSent" && !message.params.request.url.startsWith("file:")) wrong.push("fetched " + message.params.request.url);
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

try {
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  session = (await call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await call(domain + ".enable");
  const view = (width, height) => call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  await view(1000, 800);
  await call("Page.navigate", { url: pathToFileURL(page).href });
  for (let tries = 0; tries < 100 && !(await ask("document.readyState === 'complete' && !!document.querySelector('canvas')?.dataset.scale")); tries += 1) await sleep(50);

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

  await view(400, 800);
  await sleep(200);
  const width = await ask("document.documentElement.scrollWidth");
  expect(width <= 400, "no wider than the window at 400 px: " + width);
  map = await box();
  expect(map.width > 300 && map.height > 200, "the map has room at 400 px: " + JSON.stringify(map));
} catch (error) {
  wrong.push(String(error));
}
console.log(wrong.length ? wrong.join("\n") : "sound");
end(wrong.length ? 1 : 0);
