// The page: its frame, its routes and its keyboard.
import "uplot/style.css";
import "./style.css";
import { options, render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { dark, go, link, nextTheme, place, runPath, shown, useApi, versions } from "./core";
import { A, Note } from "./parts";
import { ComparePage } from "./compare";
import { RunsPage } from "./runs";
import { ApiPage, LicencesPage } from "./about";
import { CheckpointsPage } from "./checkpoints";
import { ConfigPage } from "./config";
import { MetricsPage } from "./metrics";
import { RunPage } from "./overview";
import { AlertsPage } from "./runalerts";
import { steering } from "./steering";
import { TimelinePage } from "./timeline";
import { AllAlertsPage } from "./alerts";
import { TreePage } from "./forks";
import { SchedulesPage } from "./schedules";
import { SearchPage } from "./search";
import { ServicesPage } from "./services";
import { GroupPage } from "./group";
import { EvalPage, StepPage } from "./step";
import { TrajectoryPage } from "./trajectory";
import type { About, RunList, RunView } from "./api";

interface Route {
  run?: string;
  step?: number;
  page: string;
  view: preact.ComponentChild;
  title: string;
}

function find(path: string): Route {
  const parts = path
    .split("/")
    .filter(Boolean)
    .map((p) => {
      try {
        return decodeURIComponent(p);
      } catch {
        return p;
      }
    });
  const none: Route = {
    page: "",
    view: (
      <>
        <h1>Not found</h1>
        <Note kind="bad">
          There is no page here. <A href="/">The list of runs</A> is where all begins.
        </Note>
      </>
    ),
    title: "not found",
  };
  if (!parts.length || (parts[0] === "runs" && parts.length === 1))
    return { page: "runs", view: <RunsPage />, title: "runs" };
  if (parts[0] === "compare")
    return { page: "compare", view: <ComparePage key={place.value.query.get("runs")} />, title: "compare" };
  if (parts[0] === "api-page" || parts[0] === "api") return { page: "api", view: <ApiPage />, title: "API" };
  if (parts[0] === "services") return { page: "services", view: <ServicesPage />, title: "services" };
  if (parts[0] === "schedules") return { page: "schedules", view: <SchedulesPage />, title: "schedules" };
  if (parts[0] === "alerts") return { page: "allalerts", view: <AllAlertsPage />, title: "alerts" };
  if (parts[0] === "forks") return { page: "forks", view: <TreePage />, title: "forks" };
  if (parts[0] === "licences") return { page: "api", view: <LicencesPage />, title: "licences" };
  if (parts[0] !== "runs") return none;
  const [, run, page, a, b, c] = parts;
  const of = (page: string, view: preact.ComponentChild, step?: number): Route => ({
    run,
    page,
    view,
    step,
    title: [run, page, a, b, c].filter(Boolean).join(" "),
  });
  const key = parts.join("/");
  switch (page) {
    case undefined:
      return of("run", <RunPage key={key} run={run} />);
    case "metrics":
      return of("metrics", <MetricsPage key={key} run={run} />);
    case "timeline":
      return of("timeline", <TimelinePage key={key} run={run} />);
    case "checkpoints":
      return of("checkpoints", <CheckpointsPage key={key} run={run} />);
    case "config":
      return of("config", <ConfigPage key={key} run={run} />);
    case "alerts":
      return of("alerts", <AlertsPage key={key} run={run} />);
    case "search":
      return of("search", <SearchPage key={key} run={run} />);
    case "evals":
      return b !== undefined && c !== undefined
        ? of("evals", <TrajectoryPage key={key} run={run} evaluation={a} problem={b} k={Number(c)} />)
        : of("evals", <EvalPage key={key} run={run} name={a} />);
    case "steps": {
      if (!/^\d+$/.test(a ?? "")) return none;
      const step = Number(a);
      if (b === undefined) return of("steps", <StepPage key={key} run={run} step={step} />, step);
      if (c === undefined) return of("steps", <GroupPage key={key} run={run} step={step} problem={b} />, step);
      return of("steps", <TrajectoryPage key={key} run={run} step={step} problem={b} k={Number(c)} />, step);
    }
    default:
      return none;
  }
}

const help: [string, string][] = [
  ["?", "this help"],
  ["/", "search or filter"],
  ["g r", "runs"],
  ["g o", "overview of the run"],
  ["g m", "series"],
  ["g s", "newest step"],
  ["g c", "configuration"],
  ["g t", "time line"],
  ["g f", "search the run"],
  ["g v", "services"],
  ["[  ]", "step before, step after"],
  ["j  k", "row or rollout after, before"],
  ["t", "tokens of a trajectory"],
  ["p", "steer the run"],
  [".", "light or dark"],
  ["Esc", "close"],
];

let prefixed = -Infinity; // when g was pressed: the next key may come before the page is drawn again

function Page() {
  const route = find(place.value.path);
  const [showHelp, setHelp] = useState(false);
  const list = useApi<RunList>(route.run ? "/runs" : null);
  const about = useApi<About>("/about");
  const now = useApi<RunView>(
    route.run ? `/runs/${encodeURIComponent(route.run)}` : null,
    versions.value[route.run ?? ""] ?? 0,
  );
  const newest = now.data?.step || list.data?.runs.find((r) => r.run_id === route.run)?.step || 1;
  useEffect(() => {
    document.title = route.title + " · Temper";
  }, [route.title]);
  const rail = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    // on a narrow screen the rail is a strip, of which a part is seen
    const here = rail.current?.querySelector<HTMLElement>(".here");
    if (here && rail.current)
      rail.current.scrollLeft = here.offsetLeft - (rail.current.clientWidth - here.offsetWidth) / 2;
  }, [route.page, route.run]);
  useLayoutEffect(() => {
    // with the page, not after it: a key may come at once
    const keys = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.key === "Escape") {
        setHelp(false);
        steering.value = false;
        (document.activeElement as HTMLElement | null)?.blur();
        return;
      }
      if ((e.target as HTMLElement).matches("input,textarea,select")) return;
      const way: Record<string, string | undefined> = {
        r: "/",
        o: route.run && runPath(route.run),
        m: route.run && runPath(route.run, "metrics"),
        s: route.run && runPath(route.run, "steps", newest),
        c: route.run && runPath(route.run, "config"),
        t: route.run && runPath(route.run, "timeline"),
        f: route.run && runPath(route.run, "search"),
        v: "/services",
      };
      if (e.timeStamp - prefixed < 1500) {
        prefixed = -Infinity;
        const to = way[e.key];
        if (to) {
          e.preventDefault();
          e.stopImmediatePropagation();
          go(to);
        }
        return;
      }
      const step = (d: number) => {
        if (route.run && route.step !== undefined)
          go(runPath(route.run, "steps", Math.max(1, Math.min(Math.max(newest, route.step), route.step + d))));
      };
      switch (e.key) {
        case "g":
          prefixed = e.timeStamp;
          break;
        case "?":
          setHelp(!showHelp);
          break;
        case "/":
          e.preventDefault();
          document.getElementById("search")?.focus();
          break;
        case "[":
          step(-1);
          break;
        case "]":
          step(1);
          break;
        case "p":
          if (route.run) steering.value = !steering.value;
          break;
        case ".":
          nextTheme();
          break;
      }
    };
    addEventListener("keydown", keys, true);
    return () => removeEventListener("keydown", keys, true);
  });
  const item = (page: string, label: string, href: string) => (
    <A href={href} class={route.page === page ? "here" : ""} aria-current={route.page === page ? "page" : undefined}>
      {label}
    </A>
  );
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        to the content
      </a>
      <header class="top">
        <A href="/" class="brand">
          <img src="/icon.svg" alt="" width="22" height="22" /> Temper
        </A>
        {route.run && list.data && (
          <select
            class="picker"
            aria-label="run"
            value={route.run}
            onChange={(e) => go(runPath(e.currentTarget.value))}
          >
            {!list.data.runs.some((r) => r.run_id === route.run) && <option>{route.run}</option>}
            {list.data.runs.map((r) => (
              <option key={r.run_id}>{r.run_id}</option>
            ))}
          </select>
        )}
        <span class="grow" />
        {link.value !== "off" && (
          <span class={"link-state link-" + link.value} role="status" title="updates of the run">
            {link.value === "live"
              ? "live"
              : link.value === "connecting"
                ? "connecting"
                : "no connection, trying again"}
          </span>
        )}
        <button class="icon" aria-label={dark.value ? "light theme" : "dark theme"} title="." onClick={nextTheme}>
          {dark.value ? "☀" : "☾"}
        </button>
        <button class="icon" aria-label="keyboard help" title="?" onClick={() => setHelp(!showHelp)}>
          ?
        </button>
      </header>
      <nav class="rail" aria-label="pages" ref={rail}>
        {item("runs", "Runs", "/")}
        {route.run && (
          <>
            {item("run", "Overview", runPath(route.run))}
            {item("metrics", "Series", runPath(route.run, "metrics"))}
            {item("steps", "Steps", runPath(route.run, "steps", newest))}
            {item("search", "Search", runPath(route.run, "search"))}
            {item("timeline", "Time line", runPath(route.run, "timeline"))}
            {item("checkpoints", "Checkpoints", runPath(route.run, "checkpoints"))}
            {item("config", "Configuration", runPath(route.run, "config"))}
            {item("alerts", "Alerts", runPath(route.run, "alerts"))}
          </>
        )}
        {item("compare", "Compare", route.page === "compare" ? location.pathname + location.search : "/compare")}
        {item("forks", "Forks", "/forks")}
        {item("allalerts", "All alerts", "/alerts")}
        {item("services", "Services", "/services")}
        {item("schedules", "Schedules", "/schedules")}
        {item("api", "API", "/api-page")}
        {about.data?.temporal_ui && (
          <a href={"http://" + about.data.temporal_ui} rel="noreferrer">
            Temporal
          </a>
        )}
      </nav>
      <main id="main" tabIndex={-1}>
        {route.view}
      </main>
      {showHelp && (
        <div class="help" role="dialog" aria-label="keyboard">
          <h2>Keyboard</h2>
          <dl>
            {help.map(([k, t]) => (
              <div key={k}>
                <dt>
                  <kbd>{k}</kbd>
                </dt>
                <dd>{t}</dd>
              </div>
            ))}
          </dl>
          <p class="dim small">
            {about.data?.build}
            <br />
            {about.data?.store}
          </p>
          <button onClick={() => setHelp(false)}>close</button>
        </div>
      )}
    </>
  );
}

// Whatever text an element shows comes by here, so that none of it hides anything.
const visible = (x: unknown): unknown => (typeof x === "string" ? shown(x) : Array.isArray(x) ? x.map(visible) : x);
const made = options.vnode;
options.vnode = (v) => {
  if (typeof v.type === "string") {
    const props = v.props as Record<string, unknown>;
    if (props.children !== undefined) props.children = visible(props.children);
    if (typeof props.title === "string") props.title = shown(props.title);
  }
  made?.(v);
};

const app = document.getElementById("app")!;
app.textContent = "";
render(<Page />, app);
