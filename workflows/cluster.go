package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/placement"
	"temper/internal/run/setup"
)

// TypeCluster is the workflow that gives runs their room, ClusterWorkflowID its only
// execution in a namespace.
const (
	TypeCluster       = "Cluster"
	ClusterWorkflowID = "cluster"
)

// ClusterInput is what one execution of Cluster hands to the next.
type ClusterInput struct {
	Floor    placement.Admission `json:"floor"`
	Settings placement.Settings  `json:"settings"`
	Scaling  []placement.State   `json:"scaling,omitempty"`
	// Done are the last scalings, the oldest first.
	Done []ScaledGroup `json:"done,omitempty"`
	// Began is set once open runs were asked who holds room.
	Began bool `json:"began,omitempty"`
	// Checked is when the holders were last looked up.
	Checked time.Time `json:"checked,omitzero"`
}

// ScaledGroup is a scaling, when it was decided, and why it was refused, if it was.
type ScaledGroup struct {
	placement.Scaling
	At      time.Time `json:"at"`
	Refused string    `json:"refused,omitempty"`
}

// ClusterStatus is the answer to the query status of Cluster.
type ClusterStatus struct {
	Nodes   []placement.Node   `json:"nodes,omitempty"`
	Runs    []placement.Tenant `json:"runs,omitempty"`
	Drains  []placement.Drain  `json:"drains,omitempty"`
	Scaled  []ScaledGroup      `json:"scaled,omitempty"`
	Trouble string             `json:"trouble,omitempty"`
}

const (
	// numScaled is the number of scalings that are kept for people.
	numScaled = 20
	// lookEvery is the time between two looks at a quiet cluster, lookSoon the first one after
	// something was started or stopped; it doubles.
	lookEvery = 15 * time.Second
	lookSoon  = 500 * time.Millisecond
	// checkEvery is the time between two questions whether the runs that hold room are open.
	checkEvery = 10 * time.Minute
	// clusterEvents is the length of a history after which the cluster continues as new.
	clusterEvents = 4000
)

// Cluster gives runs their room on a cluster, one run at a time, and keeps groups at their
// size. It never ends. Package placement makes its decisions.
func Cluster(ctx workflow.Context, in ClusterInput) error {
	c := &cluster{ClusterInput: in}
	if err := c.listen(ctx); err != nil {
		return err
	}
	for !c.full(ctx) {
		if err := c.turn(ctx); err != nil {
			return err
		}
	}
	c.drainSignals(ctx)
	awaitHandlers(ctx)
	c.drainSignals(ctx)
	next := c.ClusterInput
	next.Floor.Nodes, next.Floor.Stale = nil, true // seen anew
	return workflow.NewContinueAsNewError(ctx, Cluster, next)
}

type cluster struct {
	ClusterInput
	digest string
	looked time.Time
	// news says that something has come since the last decision, looks counts the looks
	// since then.
	news    bool
	looks   int
	trouble string
	scaler  scaler
	signals []signalHandler
	pending map[string]workflow.ReceiveChannel
}

func (c *cluster) listen(ctx workflow.Context) error {
	c.signals = []signalHandler{
		{activities.MessageAsk, c.takeRequest}, {activities.MessageRelease, c.takeRelease},
		{activities.MessageNews, func(workflow.Context, signalContent) error { c.looked = time.Time{}; return nil }},
	}
	c.pending = map[string]workflow.ReceiveChannel{}
	selector := workflow.NewSelector(ctx)
	for _, h := range c.signals {
		c.pending[h.name] = internalChannel(ctx, h.name)
		selector.AddReceive(c.pending[h.name], func(workflow.ReceiveChannel, bool) { c.receive(ctx, h) })
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			selector.Select(ctx)
		}
	})
	c.scaler = scaler{in: &c.ClusterInput, do: c.do}
	nodes := nodeCommands{floor: &c.Floor, changed: func() { c.news = true }}
	if err := nodes.listen(ctx); err != nil {
		return err
	}
	return workflow.SetQueryHandlerWithOptions(ctx, QueryStatus, func() (ClusterStatus, error) { return c.status(), nil },
		workflow.QueryHandlerOptions{Description: "Nodes, runs with what each waits for, drains and scalings."})
}

func (c *cluster) receive(ctx workflow.Context, h signalHandler) bool {
	content, ok := receiveSignal(c.pending[h.name])
	if !ok {
		return false
	}
	c.news = true
	if err := h.take(ctx, content); err != nil {
		workflow.GetLogger(ctx).Warn("signal ignored", "signal", h.name, "err", err)
	}
	return true
}

func (c *cluster) drainSignals(ctx workflow.Context) {
	for _, h := range c.signals {
		for c.receive(ctx, h) {
		}
	}
}

func (c *cluster) takeRequest(ctx workflow.Context, content signalContent) error {
	var r placement.Request
	if err := content.decode(&r); err != nil {
		return err
	}
	if r.Run == "" || r.Holder == "" || RunIDFromWorkflowID(r.Run) != r.Run || len(r.Need.Check()) > 0 || r.Priority < 0 || r.Priority > setup.MaxPriority {
		return fmt.Errorf("run %q asks for what no run may ask for", shorten(r.Run))
	}
	c.Floor.Ask(workflow.Now(ctx), r)
	return nil
}

func (c *cluster) takeRelease(ctx workflow.Context, content signalContent) error {
	var r activities.ReleasePlacementInput
	if err := content.decode(&r); err != nil {
		return err
	}
	c.Floor.Release(workflow.Now(ctx), r.Run, r.Epoch, r.Keep)
	return nil
}

// full reports whether it is time to continue as new.
func (c *cluster) full(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > clusterEvents
}

// turn looks where that is due, decides, acts, and waits for what comes next.
func (c *cluster) turn(ctx workflow.Context) error {
	now := workflow.Now(ctx)
	if c.news {
		c.looks = 0
	}
	c.news = false
	if !now.Before(c.nextLook(now)) {
		c.look(ctx)
	}
	for _, d := range c.Floor.Decide(workflow.Now(ctx)) {
		c.act(ctx, d)
	}
	c.scaler.scale(ctx)
	c.show(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	now = workflow.Now(ctx)
	pause := c.nextLook(now).Sub(now)
	if c.news || pause <= 0 {
		return nil
	}
	_, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{Timeout: pause, TimerOptions: workflow.TimerOptions{Summary: "until the next look at the cluster"}},
		func() bool { return c.news })
	return err
}

// nextLook is when the cluster is to be looked at again.
func (c *cluster) nextLook(now time.Time) time.Time {
	every := cmp.Or(c.Settings.LookEvery, lookEvery)
	if c.trouble == "" && c.Floor.NeedsLook() {
		every = min(every, lookSoon<<min(c.looks, 5))
	}
	next := c.looked.Add(every)
	if at := c.Floor.NextLook(now); !at.IsZero() && at.Before(next) {
		return at
	}
	return next
}

// look takes in the cluster as it is. A cluster that cannot be seen is looked at again
// later; nothing is decided meanwhile that needs it.
func (c *cluster) look(ctx workflow.Context) {
	var placing *activities.Placement
	now := workflow.Now(ctx)
	c.looked = now
	c.looks++
	in := placement.ObserveInput{Known: c.digest, FindRuns: !c.Began}
	if now.Sub(c.Checked) >= checkEvery {
		for _, t := range c.Floor.Tenants {
			in.Holders = append(in.Holders, t.Holder)
		}
	}
	var out placement.Observed
	if err := workflow.ExecuteLocalActivity(withinTask(ctx, "look at the cluster"), placing.ObserveCluster, in).Get(ctx, &out); err != nil {
		c.trouble = "the cluster cannot be seen: " + failureText(err)
		return
	}
	c.trouble = ""
	if out.Settings != nil {
		c.Settings, c.Floor.Policy = *out.Settings, out.Settings.Policy
	}
	if out.Digest != c.digest {
		c.digest, c.looks = out.Digest, 0
	}
	nodes := out.Nodes
	if nodes == nil {
		nodes = c.Floor.Nodes
	}
	c.scaler.loads = out.Loads
	now = workflow.Now(ctx)
	c.Floor.Look(now, nodes)
	if len(in.Holders) > 0 {
		c.Checked = now
	}
	for _, t := range slices.Clone(c.Floor.Tenants) {
		if slices.Contains(out.Ended, t.Holder) {
			c.Floor.Ended(now, t.Run, t.Epoch)
		}
	}
	if !c.Began {
		c.askAll(ctx, out.Open)
	}
}

// askAll asks the open runs whether they hold room: an execution that begins with nothing
// may follow one that was terminated.
func (c *cluster) askAll(ctx workflow.Context, holders []string) {
	c.Began = true
	for _, holder := range holders {
		if !slices.ContainsFunc(c.Floor.Tenants, func(t placement.Tenant) bool { return t.Holder == holder }) {
			// A run that has just ended holds nothing.
			_ = workflow.SignalExternalWorkflow(ctx, holder, "", signalPlacement, placement.Decision{Do: placement.Ask}).Get(ctx, nil)
		}
	}
}

// act carries out a decision.
func (c *cluster) act(ctx workflow.Context, d placement.Decision) {
	var placing *activities.Placement
	var out placement.Outcome
	var err error
	switch d.Do {
	case placement.Start:
		if err = c.do(ctx, "start run "+d.Run, placing.StartGang, d, &out); err != nil {
			out.Refused = failureText(err)
		}
		c.Floor.Started(workflow.Now(ctx), d.Run, d.Epoch, out.Refused)
	case placement.Stop:
		if err = c.do(ctx, "stop run "+d.Run, placing.StopGang, d, &out); err == nil {
			c.Floor.Stopped(d.Run, d.Epoch)
		}
	case placement.Shrink:
		c.scaler.shrink(ctx, d)
	case placement.CloseNode, placement.EmptyNode, placement.OpenNode:
		if err = c.do(ctx, string(d.Do)+" "+d.Node, placing.MoveNode, d, &out); err == nil {
			c.Floor.Moved(d)
		}
		if out.Refused != "" {
			c.trouble = out.Refused
		}
	case placement.Grant, placement.Yield, placement.Tell, placement.Ask:
		c.sendDecision(ctx, d)
	}
	if err != nil {
		c.trouble = failureText(err)
	}
}

// do calls an activity of the cluster. Its failure may pass, so that the workflow decides
// again later, except for an error that the activity itself marks as final.
func (c *cluster) do(ctx workflow.Context, summary string, activity, in, out any) error {
	c.looks = 0
	return workflow.ExecuteLocalActivity(withinTask(ctx, summary), activity, in).Get(ctx, out)
}

// sendDecision sends a decision to its run. A run that is missing has ended.
func (c *cluster) sendDecision(ctx workflow.Context, d placement.Decision) {
	holder := cmp.Or(d.Holder, RunWorkflowID(d.Run))
	d.Jobs = nil
	if err := workflow.SignalExternalWorkflow(ctx, holder, "", signalPlacement, d).Get(ctx, nil); err != nil && ctx.Err() == nil {
		workflow.GetLogger(ctx).Info("run has ended without a release", "run_id", d.Run, "err", err)
		c.Floor.Ended(workflow.Now(ctx), d.Run, d.Epoch)
		c.news = true
	}
}

func (c *cluster) status() ClusterStatus {
	return ClusterStatus{Nodes: c.Floor.Nodes, Runs: c.Floor.Tenants, Drains: c.Floor.Drains, Scaled: c.Done, Trouble: c.trouble}
}

// show renders the cluster for the web UI.
func (c *cluster) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, c.details(workflow.GetInfo(ctx).Namespace, workflow.Now(ctx)))
}

func (c *cluster) details(namespace string, now time.Time) string {
	ready := 0
	for _, n := range c.Floor.Nodes {
		if n.State == placement.NodeReady {
			ready++
		}
	}
	parts := []string{fmt.Sprintf("%d of %d nodes take runs", ready, len(c.Floor.Nodes))}
	if c.trouble != "" {
		parts = append(parts, "**Trouble**: "+escapeCell(c.trouble))
	}
	for _, d := range c.Floor.Drains {
		if !d.Over {
			parts = append(parts, fmt.Sprintf("Node `%s` is being emptied%s, since %s", d.Node, escapeCell(byWhom(d.Reason, d.By)), d.Since.UTC().Format(time.RFC3339)))
		}
	}
	queue := c.Floor.Queue(now)
	rows := []string{"| run | state | priority | place in the queue | since | waits for |", "|---|---|---|---|---|---|"}
	for _, t := range c.Floor.Tenants {
		place := ""
		if i := slices.IndexFunc(queue, func(q placement.Tenant) bool { return q.Run == t.Run }); i >= 0 {
			place = fmt.Sprint(i + 1)
		}
		rows = append(rows, fmt.Sprintf("| [%s](%s) | %s | %d | %s | %s | %s |", t.Run, pageURL(namespace, t.Holder), t.Phase, t.Priority, place,
			t.Since.UTC().Format(time.RFC3339), escapeCell(t.Why)))
	}
	parts = append(parts, strings.Join(rows, "\n"))
	for _, s := range slices.Backward(c.Done) {
		parts = append(parts, escapeCell(strings.TrimSuffix(s.At.UTC().Format(time.RFC3339)+" "+s.Scaling.String()+"; "+s.Refused, "; ")))
	}
	return strings.Join(parts, "\n\n")
}
