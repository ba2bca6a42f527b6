/* How long a card was looked at: the time while the page is in sight. */

class Stopwatch {
  constructor() {
    this.restart();
  }

  restart() {
    this.spent_ms = 0;
    this.since_ms = document.hidden ? null : performance.now();
  }

  /** Stop while the page is hidden. */
  heed() {
    this.spent_ms = this.seconds_s * 1000;
    this.since_ms = document.hidden ? null : performance.now();
  }

  get seconds_s() {
    const now_ms = this.since_ms === null ? 0 : performance.now() - this.since_ms;
    return (this.spent_ms + now_ms) / 1000;
  }
}
