// Browsers start no workers for pages opened from a disk: there, search runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => deliver(this, data);
      const script = frame.contentDocument.createElement("script");
      this.loaded = new Promise((resolve) => { script.onload = resolve; });
      script.src = address;
      frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => deliver(this.inside, data));
    }
  };
  const deliver = (target, data) =>
    setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data })));
  window.Worker = window.IFrameWorker;
}
