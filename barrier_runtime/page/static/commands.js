// The two buttons: send commands and show their outcome.

export class Commands {
  constructor(api, snapshot, stop, dialog, outcome) {
    Object.assign(this, { api, snapshot, stop, dialog, outcome });
    snapshot.addEventListener("click", () => this.send("snapshot"));
    stop.addEventListener("click", () => dialog.showModal());
    dialog.querySelector("#stop-no").addEventListener("click", () => dialog.close());
    dialog.querySelector("#stop-yes").addEventListener("click", () => {
      dialog.close();
      this.send("stop");
    });
  }

  async send(kind) {
    this.disable();
    this.say("", kind === "snapshot" ? "Taking a snapshot…" : "Stopping with a snapshot…");
    try {
      const answer = await fetch(`${this.api}/${kind}`, { method: "POST", headers: { "X-Cutline-Request": "page" } });
      if (!answer.ok) this.say("bad", `Refused: ${(await answer.text()).trim()}`);
    } catch {
      this.say("bad", "The driver did not answer; no command was sent.");
    }
  }

  /** Show the commands that the server knows, from this page or another. */
  show(commands, run) {
    const waits = (kind) => commands.some((command) => command.kind === kind && command.state === "waiting");
    const stops = waits("stop") || waits("stop-now");
    this.snapshot.disabled = !run.isActive || waits("snapshot") || stops;
    this.stop.disabled = !run.isActive || stops;
    if (!run.isActive && this.dialog.open) this.dialog.close();
    const last = commands[commands.length - 1];
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
