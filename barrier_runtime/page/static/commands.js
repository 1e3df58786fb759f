// The two buttons: places orders and says what came of them.

export class Orders {
  constructor(api, snapshot, stop, dialog, outcome) {
    Object.assign(this, { api, snapshot, stop, dialog, outcome });
    snapshot.addEventListener("click", () => this.place("snapshot"));
    stop.addEventListener("click", () => dialog.showModal());
    dialog.querySelector("#stop-no").addEventListener("click", () => dialog.close());
    dialog.querySelector("#stop-yes").addEventListener("click", () => {
      dialog.close();
      this.place("stop");
    });
  }

  async place(kind) {
    this.disable();
    this.say("", kind === "snapshot" ? "Taking a snapshot…" : "Stopping with a snapshot…");
    try {
      const answer = await fetch(`${this.api}/${kind}`, { method: "POST", headers: { "X-Cutline-Request": "page" } });
      if (!answer.ok) this.say("bad", `Refused: ${(await answer.text()).trim()}`);
    } catch {
      this.say("bad", "The driver did not answer; nothing was ordered.");
    }
  }

  /** What the server knows of orders, from this page or another. */
  show(orders, run) {
    const waits = (kind) => orders.some((order) => order.kind === kind && order.state === "waiting");
    this.snapshot.disabled = !run.isActive || waits("snapshot") || waits("stop");
    this.stop.disabled = !run.isActive || waits("stop");
    if (!run.isActive && this.dialog.open) this.dialog.close();
    const last = orders[orders.length - 1];
    if (!last) return;
    const text = { waiting: "Waiting", done: "Done", failed: "Failed" }[last.state];
    this.say({ waiting: "", done: "good", failed: "bad" }[last.state], `${text}: ${last.text}`);
  }

  disable() {
    this.snapshot.disabled = this.stop.disabled = true;
  }

  say(kind, text) {
    if (this.outcome.textContent === text) return;
    this.outcome.className = `notice ${kind}`;
    this.outcome.textContent = text;
    this.outcome.hidden = false;
  }
}
