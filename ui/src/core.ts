// What every page uses: the address as state, requests, the token, live updates, numbers and
// texts as people read them.
import { signal, effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

export const enc = encodeURIComponent;

// ---- the address -------------------------------------------------------------------------

export interface Place {
  path: string;
  query: URLSearchParams;
}
const here = (): Place => ({ path: location.pathname, query: new URLSearchParams(location.search) });
export const place = signal<Place>(here());

export function go(href: string) {
  if (href === location.pathname + location.search) return;
  history.pushState(null, "", href);
  place.value = here();
  scrollTo(0, 0);
}
addEventListener("popstate", () => {
  place.value = here();
});

// setQuery changes the state of a page without a step in the history of the browser.
export function setQuery(changes: Record<string, string | null | undefined>) {
  const q = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value) q.set(key, value);
    else q.delete(key);
  }
  const text = q.toString();
  history.replaceState(null, "", location.pathname + (text ? "?" + text : ""));
  place.value = here();
}
export const query = (key: string, otherwise = "") => place.value.query.get(key) ?? otherwise;
export const runPath = (run: string, ...rest: (string | number)[]) =>
  "/runs/" + [run, ...rest].map((p) => encodeURIComponent(String(p))).join("/");

// ---- the token ---------------------------------------------------------------------------

const tokenKey = "temper.token";
export const token = signal(sessionStorage.getItem(tokenKey) ?? "");
// takeToken takes the token out of the address, also of one that is opened in a tab that shows this page.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    token.value = given;
    history.replaceState(null, "", location.pathname + location.search);
  }
}
takeToken();
addEventListener("hashchange", takeToken);
effect(() => {
  if (token.value) sessionStorage.setItem(tokenKey, token.value);
  else sessionStorage.removeItem(tokenKey);
});

// ---- requests ----------------------------------------------------------------------------

export class Failure extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

const headers = (): Record<string, string> => (token.value ? { Authorization: "Bearer " + token.value } : {});

export async function api<T>(path: string, init: RequestInit = {}): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch("/api/v1" + path, {
      ...init,
      headers: { ...headers(), ...(init.body ? { "Content-Type": "application/json" } : {}) },
    });
  } catch (e) {
    if ((e as Error).name === "AbortError") throw e;
    throw new Failure(0, "the dashboard does not answer: is temper role ui running?");
  }
  if (answer.ok) return answer.json() as Promise<T>;
  let detail = answer.statusText;
  try {
    detail = (await answer.json()).detail;
  } catch {
    /* no problem document */
  }
  throw new Failure(answer.status, detail);
}
export const send = <T>(path: string, body: unknown, method = "POST") =>
  api<T>(path, { method, body: JSON.stringify(body) });

// readLines reads an answer of JSON lines while it comes.
export async function readLines<T>(path: string, signal: AbortSignal, take: (lines: T[]) => void) {
  const answer = await fetch("/api/v1" + path, { signal, headers: headers() });
  if (!answer.ok || !answer.body) {
    let detail = answer.statusText;
    try {
      detail = (await answer.json()).detail;
    } catch {
      /* no problem document */
    }
    throw new Failure(answer.status, detail);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    const parts = (rest + (value ?? "")).split("\n");
    rest = done ? "" : (parts.pop() ?? "");
    const lines = parts.filter(Boolean).map((l) => JSON.parse(l) as T);
    if (lines.length) take(lines);
    if (done) return;
  }
}

// download asks with the token, which a plain link cannot send.
export async function download(path: string, name: string) {
  const answer = await fetch("/api/v1" + path, { headers: headers() });
  if (answer.ok) save(name, await answer.blob());
}
export function save(name: string, data: Blob) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(data);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10_000);
}

export interface Loaded<T> {
  data?: T;
  error?: Failure;
  loading: boolean;
}

// useApi loads a path, and again when version changes; what was there stays until then.
export function useApi<T>(path: string | null, version: unknown = 0): Loaded<T> {
  const [state, set] = useState<Loaded<T> & { path?: string | null }>({ loading: true });
  const load = useRef(() => {});
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let busy = false,
      again = false;
    const ask = async () => {
      if (busy) {
        again = true;
        return;
      } // an answer on its way is not thrown away for a newer one
      busy = true;
      do {
        again = false;
        set((old) => (old.path === path ? { ...old, loading: true } : { loading: true, path }));
        try {
          const data = await api<T>(path, { signal: stop.signal });
          if (!stop.signal.aborted) set({ data, loading: false, path });
        } catch (error) {
          if (!stop.signal.aborted)
            set((old) => ({
              data: old.path === path ? old.data : undefined,
              error: error as Failure,
              loading: false,
              path,
            }));
        }
      } while (again && !stop.signal.aborted);
      busy = false;
    };
    load.current = () => void ask();
    return () => {
      stop.abort();
      load.current = () => {};
    };
  }, [path, token.value]);
  useEffect(() => load.current(), [path, version, token.value]);
  return state.path === path ? state : { loading: path !== null };
}

// ---- live updates ------------------------------------------------------------------------

export type Link = "off" | "connecting" | "live" | "waiting";
export const link = signal<Link>("off");
export const versions = signal<Record<string, number>>({});
export const followed = signal<string[]>([]);
const touched = new Set<string>();
let timer = 0;

function touch(run: string) {
  touched.add(run);
  if (timer) return;
  timer = window.setTimeout(() => {
    timer = 0;
    const next = { ...versions.value };
    for (const r of touched) next[r] = (next[r] ?? 0) + 1;
    touched.clear();
    versions.value = next;
  }, 250);
}

// One stream a page carries all runs on it. It is read by fetch, which can send the token, and
// closed while nobody sees the page.
let stop: AbortController | null = null;
async function listen(runs: string[]) {
  stop?.abort();
  const mine = (stop = new AbortController());
  let cursor = "";
  for (let pause = 1000; !mine.signal.aborted;) {
    link.value = "connecting";
    try {
      const answer = await fetch("/api/v1/events?" + runs.map((r) => "run=" + encodeURIComponent(r)).join("&"), {
        signal: mine.signal,
        headers: { ...headers(), ...(cursor ? { "Last-Event-ID": cursor } : {}) },
      });
      if (!answer.ok || !answer.body) throw new Failure(answer.status, answer.statusText);
      link.value = "live";
      pause = 1000;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop() ?? "";
        for (const block of blocks) {
          let kind = "",
            data = "";
          for (const line of block.split("\n")) {
            if (line.startsWith("id: ")) cursor = line.slice(4);
            else if (line.startsWith("event: ")) kind = line.slice(7);
            else if (line.startsWith("data: ")) data = line.slice(6);
          }
          if (kind === "reset") touch(JSON.parse(data));
          else if (kind === "view") go(JSON.parse(data).path);
          else if (kind) touch(JSON.parse(data).run);
        }
      }
    } catch (e) {
      if (mine.signal.aborted) return;
    }
    if (mine.signal.aborted) return;
    link.value = "waiting";
    await new Promise((r) => setTimeout(r, pause));
    pause = Math.min(2 * pause, 15_000);
  }
}
const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => {
  visible.value = !document.hidden;
});
let last = "";
effect(() => {
  const wanted = visible.value ? followed.value.join("\n") : "";
  if (wanted === last) return;
  last = wanted;
  stop?.abort();
  link.value = "off";
  if (wanted) void listen(wanted.split("\n"));
});

// mostFollowed is how many runs a stream carries.
const mostFollowed = 16;

// useRuns follows runs while a page shows them, and returns a number that changes with them.
export function useRuns(runs: string[]): number {
  const key = runs.join("\n");
  useEffect(() => {
    followed.value = key ? key.split("\n").slice(0, mostFollowed) : [];
    return () => {
      followed.value = [];
    };
  }, [key]);
  return runs.reduce((n, r) => n + (versions.value[r] ?? 0), 0);
}

// useEvery counts up while the page is seen.
export function useEvery(ms: number): number {
  const [n, set] = useState(0);
  useEffect(() => {
    const t = setInterval(() => {
      if (!document.hidden) set((x) => x + 1);
    }, ms);
    return () => clearInterval(t);
  }, [ms]);
  return n;
}

// ---- numbers and texts -------------------------------------------------------------------

export type Num = number | string | null | undefined; // NaN and infinities travel as text

export const asNumber = (v: Num): number | null => {
  if (v === null || v === undefined) return null;
  const n = typeof v === "number" ? v : Number(v === "+Inf" ? "Infinity" : v === "-Inf" ? "-Infinity" : v);
  return Number.isFinite(n) ? n : null;
};

export function num(v: Num, digits = 3): string {
  if (v === null || v === undefined) return "–";
  if (typeof v === "string") return v;
  if (v === 0) return "0";
  const a = Math.abs(v);
  if (a >= 1e9 || a < 1e-4) return v.toExponential(2);
  if (a >= 1e6) return (v / 1e6).toFixed(2) + "M";
  if (a >= 1e4) return (v / 1e3).toFixed(1) + "k";
  if (Number.isInteger(v)) return String(v);
  return String(+v.toPrecision(Math.max(digits, 1)));
}
export const percent = (v: Num) => {
  const n = asNumber(v);
  return n === null ? "–" : (100 * n).toFixed(1) + "%";
};
export function seconds(s: number): string {
  if (!Number.isFinite(s)) return "–";
  if (s > 0 && s < 0.1) return s < 0.001 ? "<1 ms" : Math.round(1000 * s) + " ms";
  if (s < 59.5) return s < 9.95 ? s.toFixed(1) + " s" : Math.round(s) + " s";
  const m = Math.floor(Math.round(s) / 60);
  if (m < 60) return `${m} min ${Math.round(s) % 60} s`;
  const h = Math.floor(m / 60);
  return h < 48 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} d ${h % 24} h`;
}
export function bytes(n: number): string {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit;
    n /= 1024;
  }
  return n.toFixed(1) + " TiB";
}
export function age(at?: string): string {
  if (!at || at.startsWith("0001")) return "–";
  return seconds(Math.max(0, (Date.now() - Date.parse(at)) / 1000)).replace(/ \d+ (s|min|h)$/, "") + " ago";
}
export const clock = (at: string) => new Date(at).toLocaleString();

// shown makes what cannot be seen visible: control characters, and those that turn the direction
// of text around. What a model wrote may have any of them.
const hidden =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
export const shown = (text: string) =>
  text.replace(hidden, (c) => (c === "\r" ? "␍" : "\\u{" + c.charCodeAt(0).toString(16) + "}"));

// ---- theme -------------------------------------------------------------------------------

export const theme = signal(localStorage.getItem("temper.theme") ?? "auto");
export const dark = signal(false);
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const applyTheme = () => {
  dark.value = theme.value === "dark" || (theme.value === "auto" && wantsDark.matches);
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
};
wantsDark.addEventListener("change", applyTheme);
effect(() => {
  localStorage.setItem("temper.theme", theme.value);
  applyTheme();
});
export const nextTheme = () => {
  theme.value = dark.value ? "light" : "dark";
};
