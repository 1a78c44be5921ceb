// Made of the route table by go generate ./ui; do not edit.

export interface About {
  build: string;
  steering?: string;
  store: string;
  temporal_ui?: string;
}
export interface Amendment {
  at?: string;
  by?: string;
  from_step: number;
  reason?: string;
  repeat?: string;
  set?: Record<string, string>;
}
export interface Answer {
  answer: string;
}
export interface Busy {
  cores: number;
  graphs?: Graphs;
  host: string;
  idle_ns: number;
  machine_ns: number;
  passes_by_rows?: number[];
  peak_memory_bytes?: number;
  process_ns: number;
  programs_ns: number;
  sandbox_ns: number;
  usage?: SamplerUse;
  wall_ns: number;
  work?: Work;
  worker: string;
}
export interface CatalogEntry {
  fork?: ForkFrom;
  format: number;
  name?: string;
  num_steps: number;
  reason?: string;
  refused?: boolean;
  reward?: number;
  run_id: string;
  seed: number;
  stage?: string;
  stages?: StageAccuracy[];
  started?: string;
  state: string;
  step: number;
  tags?: string[];
  trouble?: string;
  updated?: string;
}
export interface Change {
  from: string;
  key: string;
  to: string;
}
export interface CheckpointRow {
  bytes: number;
  cursor: number;
  damage?: string;
  epoch: number;
  kept: string;
  reward?: number | string;
  step: number;
}
export interface CheckpointsView {
  checkpoints: CheckpointRow[];
  folder: string;
  policies: number[];
}
export interface Columns {
  data: Record<string, unknown>;
  remark?: string;
  rows: number;
  source: string;
}
export interface Command {
  by?: string;
  from?: string;
  from_step?: number;
  now?: boolean;
  reason?: string;
  run_id?: string;
  set?: Record<string, string>;
  stage?: string;
  without_amendments?: boolean;
}
export interface ConfigKey {
  amendable?: boolean;
  default: string;
  key: string;
  opened?: string;
  value: string;
}
export interface ConfigView {
  amendments: Amendment[];
  keys: ConfigKey[];
  step: number;
}
export interface Durations {
  counts?: number[];
  max_ns?: number;
}
export interface End {
  digest: string;
  link: string;
  seal: string;
}
export interface EvalRow {
  accuracy: number;
  copied?: number;
  copies?: number;
  greedy_tool_error_rate: number;
  infra_errors: number;
  label: string;
  mean_calls: number;
  mean_tokens: number;
  mean_turns: number;
  name: string;
  num_problems: number;
  policy_version: number;
  record?: Ref;
  sample_ns: number;
  sampled_accuracy: number;
  set?: string;
  stage: number;
  tool_error_rate: number;
  tool_ns: number;
  trajectories: string;
  wall_ns: number;
}
export interface Evaluation {
  accuracy: number;
  copied?: number;
  copies?: number;
  greedy_tool_error_rate: number;
  infra_errors: number;
  label: string;
  mean_calls: number;
  mean_tokens: number;
  mean_turns: number;
  num_problems: number;
  policy_version: number;
  record?: Ref;
  sample_ns: number;
  sampled_accuracy: number;
  set?: string;
  stage: number;
  tool_error_rate: number;
  tool_ns: number;
  trajectories: string;
  wall_ns: number;
}
export interface FindStep {
  found: number;
  rows: number;
  step: number;
}
export interface FindView {
  columns: string[];
  first: FoundRow[];
  found: number;
  missing: number;
  rows: number;
  steps: FindStep[];
  unread: number;
}
export interface ForkFrom {
  from?: string;
  run_id: string;
  step?: number;
  without_amendments?: boolean;
}
export interface FoundRow {
  advantage?: number;
  answer: string;
  answer_tags: number;
  calls: number;
  failed_calls: number;
  fate: string;
  mean_entropy?: number;
  mean_logprob?: number;
  p_err?: number;
  p_format?: number;
  problem: string;
  prompt_tokens: number;
  response_tokens: number;
  reward: number;
  rollout: number;
  step: number;
  stop_reason: string;
  turns: number;
  weight?: number;
}
export interface Freeze {
  below?: boolean;
  by?: string;
  reason?: string;
  since: string;
  workflow: string;
}
export interface Gauge {
  help?: string;
  name: string;
  value: number | string;
}
export interface Graphs {
  compiled: number;
  compiling_ns: number;
  loaded: number;
  programs: number;
}
export interface GroupRow {
  calls: number;
  correct: number;
  failed: number;
  fate: string;
  kept: number;
  lost?: number;
  num: number;
  problem: string;
  tokens: number;
}
export interface GroupView {
  fate: string;
  problem: Problem;
  problems: string[];
  rows: RolloutRow[];
  source: string;
  step: number;
  texts?: string;
  why: string;
}
export interface HistoryView {
  last: number;
  left: number;
  steps: ProblemStep[];
}
export interface KindSize {
  bytes: number;
  count?: number;
  kind: string;
  objects: number;
  unit?: string;
}
export interface Look {
  path: string;
}
export interface Looked {
  pages: number;
}
export interface Mark {
  at: string;
  kind: string;
  text: string;
}
export interface Metric {
  better: string;
  meaning: string;
  name: string;
  unit: string;
}
export interface Notes {
  by?: string;
  tags: string[];
  text: string;
  time?: string;
}
export interface Order {
  command: Command;
  confirm?: string;
}
export interface Outcome {
  accuracy: number;
  tool_error_rate: number;
}
export interface Preview {
  changes: Change[];
  problems: string[];
  step: number;
  warnings: string[];
}
export interface Problem {
  answer: string;
  env: string;
  fixture?: string;
  id: string;
  level?: number;
  license?: string;
  prompt: string;
  source?: string;
}
export interface ProblemStep {
  correct: number;
  kept: number;
  num: number;
  step: number;
}
export interface ProcessView {
  gauges: Gauge[];
  last_exit?: string;
  name: string;
  pid?: number;
  restarts: number;
  since: string;
  state: string;
  trouble?: string;
}
export interface Ref {
  key: string;
  sha256: string;
  size: number;
}
export interface RolloutRow {
  advantage?: number;
  answer: string;
  answer_tags: number;
  calls: number;
  end: string;
  failed_calls: number;
  fate: string;
  mean_entropy?: number;
  mean_logprob?: number;
  p_err?: number;
  p_format?: number;
  problem: string;
  prompt_tokens: number;
  response_tokens: number;
  reward: number;
  rollout: number;
  stop_reason: string;
  turns: number;
  weight?: number;
  why: string;
}
export interface RunAlert {
  run_id: string;
  state: string;
  step: number;
  text: string;
}
export interface RunList {
  filling?: number;
  remark?: string;
  runs: RunRow[];
  server: boolean;
}
export interface RunRow {
  fork?: ForkFrom;
  format: number;
  keys?: Record<string, string>;
  lost?: boolean;
  name?: string;
  num_steps: number;
  problem?: string;
  reason?: string;
  refused?: boolean;
  reward?: number;
  rewards?: number[];
  run_id: string;
  seed: number;
  stage?: string;
  stages?: StageAccuracy[];
  started?: string;
  state: string;
  step: number;
  tags?: string[];
  throughput?: number;
  tool_errors?: number;
  trouble?: string;
  updated?: string;
}
export interface RunStatus {
  alerts?: string[];
  amendments?: string[];
  by?: string;
  checkpoint?: number;
  child?: string;
  eta_seconds: number;
  fork?: ForkFrom;
  frozen?: Freeze;
  last: StepNumbers;
  not_promised?: string;
  num_steps: number;
  opened?: boolean;
  policy_version: number;
  prepared?: boolean;
  priority?: number;
  reason?: string;
  restarted?: string;
  room?: string;
  run_id: string;
  sft_step: number;
  sft_steps: number;
  since?: string;
  stage: number;
  stage_name?: string;
  stages?: StageStatus[];
  state: string;
  step: number;
  summary_path?: string;
}
export interface RunView {
  alerts: string[];
  amendments: string[];
  children: CatalogEntry[];
  dir: string;
  evaluations: Evaluation[];
  fork?: ForkFrom;
  format: number;
  group_size: number;
  name: string;
  not_promised?: string;
  num_steps: number;
  plan: Stage[];
  reason?: string;
  refused?: boolean;
  reward?: number;
  rollouts_per_problem: number;
  run_id: string;
  seed: number;
  sft_steps: number;
  stage?: string;
  stages?: StageAccuracy[];
  started?: string;
  state: string;
  step: number;
  summary?: Summary;
  tags?: string[];
  trouble?: string;
  updated?: string;
  window?: number;
}
export interface SamplerUse {
  call_queue: Durations;
  call_wall: Durations;
  evictions: number;
  fed: number;
  judging_ns: number;
  kv_use: Gauge;
  loading_ns: number;
  rows: number;
  running: Gauge;
  shared: number;
  tokens: number;
  waiting: Gauge;
}
export interface ScheduleRow {
  events: Mark[];
  good?: string;
  id: string;
  last?: string;
  missed?: number;
  next?: string;
  note?: string;
  paused?: boolean;
  running: string[];
  skipped?: number;
  when: string[];
}
export interface SchedulesView {
  remark?: string;
  schedules: ScheduleRow[];
}
export interface SeriesView {
  stages: string[];
  steps: number[];
  thinned?: boolean;
  tokens: number[];
  values: Record<string, (number | string | null)[]>;
  wall: number[];
}
export interface ServicesView {
  processes: ProcessView[];
  remark?: string;
}
export interface Span {
  end: string;
  kind: string;
  link?: string;
  name: string;
  open?: boolean;
  start: string;
  step?: number;
  text?: string;
}
export interface SpentCall {
  begin_s: number;
  cpu_s: number;
  peak_memory_bytes: number;
  queue_s: number;
  stderr?: string;
  stderr_bytes: number;
  stdout?: string;
  stdout_bytes: number;
  took_s: number;
  wall_s: number;
}
export interface SpentTurn {
  begin_s: number;
  calls: SpentCall[];
  generate_s: number;
}
export interface SpentView {
  sample_s: number;
  tool_s: number;
  turns: SpentTurn[];
}
export interface Stage {
  filter?: boolean;
  first_step: number;
  index: number;
  judged?: boolean;
  name: string;
  of?: number;
  offset?: number;
  refill?: number;
  steps: number;
}
export interface StageAccuracy {
  after?: number;
  before?: number;
  name: string;
}
export interface StageStatus {
  after?: Outcome;
  before?: Outcome;
  name: string;
  note?: string;
  steps: number;
}
export interface StageSummary {
  accuracy_after?: number;
  accuracy_before?: number;
  accuracy_stage_end?: number;
  filter_rule?: string;
  mean_tokens?: number;
  mean_tokens_before?: number;
  mean_turns?: number;
  mean_turns_before?: number;
  name: string;
  problems_filtered: number;
  problems_total: number;
  steps: number;
  tool_error_rate_after?: number;
  tool_error_rate_before?: number;
  tool_error_rate_stage_end?: number;
}
export interface StepNumbers {
  loss: number;
  response_tokens: number;
  reward: number;
  seconds: number;
  step: number;
  tokens_per_sec: number;
  tool_error_rate: number;
}
export interface StepRecord {
  busy?: Busy[];
  ended: string;
  metrics: Record<string, number | string>;
  not_promised?: string;
  num_steps: number;
  sampled_by?: number;
  spans?: VersionSpan[];
  stage: number;
  stage_name: string;
  started: string;
  step: number;
}
export interface StepView {
  groups: GroupRow[];
  last: number;
  record?: StepRecord;
  step: number;
  texts?: string;
}
export interface Summary {
  config_sha256: string;
  ended: string;
  fork_of?: string;
  fork_step?: number;
  orchestration_ms_per_step: number;
  orchestration_share: number;
  peak_rss_bytes: number;
  policy_path: string;
  policy_version: number;
  proof?: End;
  restarted?: string;
  run_id: string;
  seed: number;
  stages: StageSummary[];
  started: string;
  steps: number;
  stopped?: boolean;
  time_split: TimeSplit;
  wall_seconds: number;
}
export interface TimeSplit {
  other: number;
  sample: number;
  tool: number;
  train: number;
}
export interface TimelineView {
  marks: Mark[];
  missing: string[];
  spans: Span[];
}
export interface TokensView {
  entropies?: (number | string | null)[];
  ids: number[];
  logprobs: (number | string | null)[];
  mask: number[];
  missing: string[];
  prompt_tokens: number;
  texts: string[];
  trainer_logprobs?: (number | string | null)[];
}
export interface ToolCall {
  arguments?: string;
  id?: string;
  name?: string;
  response: string;
  status: string;
}
export interface TrajectoryView {
  advantage?: number;
  answer: string;
  answer_tags: number;
  calls: number;
  conversation: TurnView[];
  cut?: string;
  err?: string;
  failed_calls: number;
  fate: string;
  mean_entropy?: number;
  mean_logprob?: number;
  p_err?: number;
  p_format?: number;
  policy_version: number;
  problem: string;
  problem_data: Problem;
  prompt: string;
  prompt_tokens: number;
  response_tokens: number;
  reward: number;
  reward_details?: string;
  rollout: number;
  rollouts: number[];
  seed: string;
  spent?: SpentView;
  step: number;
  stop_reason: string;
  times: string;
  turns: number;
  weight?: number;
  why?: string;
}
export interface TurnView {
  calls?: ToolCall[];
  end: number;
  finish: string;
  mean_logprob?: number;
  result?: string;
  start: number;
  text: string;
}
export interface Usage {
  kinds: KindSize[];
  steps: number;
}
export interface VersionSpan {
  until?: number;
  version: number;
}
export interface Work {
  flops: number;
  peak_flops: number;
}
