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

const view = (width, height) => call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
// Opens the page, waits until `ready` holds in it, goes through `steps`, and says what was wrong.
const visit = async (ready, steps) => {
  try {
    const { targetId } = await call("Target.createTarget", { url: "about:blank" });
    session = (await call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await call(domain + ".enable");
    await view(1000, 800);
    await call("Page.navigate", { url: pathToFileURL(page).href });
    for (let tries = 0; tries < 100 && !(await ask(`document.readyState === 'complete' && (${ready})`)); tries += 1) await sleep(50);
    await steps();
  } catch (error) {
    wrong.push(String(error));
  }
  console.log(wrong.length ? wrong.join("\n") : "sound");
  end(wrong.length ? 1 : 0);
};
