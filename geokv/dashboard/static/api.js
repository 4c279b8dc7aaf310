// Calls to the server, and its streams.

const KEY = "geokv-token";

/** Take the token out of the address, where the terminal has put it, and keep it for this tab. */
export function takeToken() {
  const match = /^#token=([\w-]+)$/.exec(location.hash);
  if (!match) return;
  sessionStorage.setItem(KEY, match[1]);
  history.replaceState(null, "", `${location.pathname}#/`);
}

export const mayAct = () => sessionStorage.getItem(KEY) !== null;

async function answer(response) {
  const data = await response.json().catch(() => ({}));
  if (response.ok) return data;
  const error = new Error(data.error ?? `the server answered ${response.status}`);
  error.hint = data.hint ?? "";
  error.status = response.status;
  if (response.status === 401) {
    error.hint = "the dashboard has been started anew since: open the address it has printed now";
  }
  throw error;
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Error("the dashboard does not answer: has it been ended?");
  }
}

export const get = async (path) => answer(await reach(path, { cache: "no-store" }));

export const post = async (path, body = {}) =>
  answer(
    await reach(path, {
      method: "POST",
      headers: { "content-type": "application/json", "x-geokv-token": sessionStorage.getItem(KEY) ?? "" },
      body: JSON.stringify(body),
    }),
  );

/**
 * Follow a stream. The browser connects again by itself and says how far it has come.
 *
 * While the page is out of sight its connection is closed: a browser has six for a server, and a
 * dozen tabs of runs would leave none for anything else. It goes on where it was.
 *
 * takers: event name → what takes its data. `end` ends it. Returns what closes it.
 */
export function listen(path, takers, onState) {
  let source = null;
  let last = "";
  let over = false;

  function open() {
    source = new EventSource(last ? `${path}?last=${encodeURIComponent(last)}` : path);
    source.addEventListener("open", () => onState("open"));
    source.addEventListener("error", () => {
      if (over || source === null) return;
      onState("lost");
      // Refused (404, 503): the browser gives up.
      if (source.readyState === EventSource.CLOSED) takers.refused?.();
    });
    for (const [name, take] of Object.entries(takers)) {
      if (name !== "refused") source.addEventListener(name, (event) => arrived(name, take, event));
    }
  }

  function arrived(name, take, event) {
    last = event.lastEventId || last;
    if (name === "end") {
      close();
      onState("over");
    }
    take(JSON.parse(event.data));
  }

  function pause() {
    source?.close();
    source = null;
  }

  function close() {
    over = true;
    document.removeEventListener("visibilitychange", seen);
    pause();
  }

  function seen() {
    if (document.hidden) pause();
    else if (source === null) open();
  }

  document.addEventListener("visibilitychange", seen);
  if (!document.hidden) open();
  return close;
}
