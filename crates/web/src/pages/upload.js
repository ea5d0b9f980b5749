// Uploads a file that was dropped or chosen, with its progress.
"use strict";
const box = document.getElementById("upload");
if (box) {
  const [field, place, replace, bar, status] = ["upload-file", "upload-place", "upload-replace", "upload-progress", "upload-status"].map((id) => document.getElementById(id));
  const send = (file) => {
    const query = new URLSearchParams({ name: file.name });
    if (place) query.set("into", place.value);
    if (replace.checked) query.set("replace", "1");
    const request = new XMLHttpRequest();
    request.open("POST", box.dataset.action + (box.dataset.action.includes("?") ? "&" : "?") + query);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("X-Csrf", box.dataset.csrf);
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) bar.value = 100 * event.loaded / event.total;
    });
    request.addEventListener("load", () => {
      if (request.status === 200) { location.href = request.responseText; return; }
      const page = new DOMParser().parseFromString(request.responseText, "text/html");
      status.textContent = page.querySelector(".bad")?.textContent ?? String(request.status);
      bar.hidden = true;
    });
    request.addEventListener("error", () => { status.textContent = box.dataset.failed; bar.hidden = true; });
    bar.hidden = false;
    status.textContent = file.name;
    request.send(file);
  };
  box.hidden = false;
  document.getElementById("upload-send").addEventListener("click", () => { if (field.files[0]) send(field.files[0]); });
  box.addEventListener("dragover", (event) => { event.preventDefault(); box.classList.add("over"); });
  box.addEventListener("dragleave", () => box.classList.remove("over"));
  box.addEventListener("drop", (event) => {
    event.preventDefault();
    box.classList.remove("over");
    if (event.dataTransfer.files[0]) send(event.dataTransfer.files[0]);
  });
}
