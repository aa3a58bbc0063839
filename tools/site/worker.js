// Runs a worker's script in a hidden frame. Browsers refuse workers to pages that are opened as files.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.loaded = new Promise((done) => { this.frame.onload = done; });
      const answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame.srcdoc = `<script>postMessage = (data) => frameElement.answer(data);<\/script>` +
        `<script src="${url}"><\/script>`;
      this.frame.answer = answer;
      const attach = () => document.body.append(this.frame);
      document.body ? attach() : addEventListener("DOMContentLoaded", attach);
    }

    async postMessage(data) {
      await this.loaded;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
