// A browser starts no worker from a file, and the search is one. Where pages are opened from a folder it runs in a
// hidden frame instead. The search looks for a parent with the name IFrameWorker to know that it does.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...urls) => {
        for (const each of urls) await this.load(each);
      };
      this.ready = this.load(url);
    }

    load(url) {
      const page = this.frame.contentDocument;
      const script = page.createElement("script");
      script.src = url;
      const done = new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }));
      page.body.append(script);
      return done;
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
