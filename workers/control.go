package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/internal/role"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/internal/temporalclient"
	"temper/workflows"
)

// rssInterval is short enough to see an evaluation's peak.
const rssInterval = time.Second

// ControlOptions configure a control role.
type ControlOptions struct {
	Place
	// MemoryOf is the process whose descendants make up the service; a summary has
	// their largest memory. 0 is this process.
	MemoryOf int
	// RolloutShards is into how many parts the steps of runs that begin here cut their
	// sampling, so that as many rollout roles share it; 0 is one. A run keeps the
	// number with which it began, and has the same bits with any.
	RolloutShards int
	// Cluster is where runs that ask for them get dedicated workers.
	Cluster ClusterOptions
}

// MaxRolloutShards bounds the activities of one step, which its history lists.
const MaxRolloutShards = 256

// Control serves workflows and their bookkeeping. Several control roles may run
// side by side.
func Control(o ControlOptions) Role {
	return Role{
		Row: role.Of(role.Control), Queues: []string{workflows.QueueControl},
		Run: func(ctx context.Context, v *Vitals) error { return serveControl(ctx, o, v) },
	}
}

// PeakFile holds the largest memory of the service since `temper up` started it.
func PeakFile(p *config.Process) string { return filepath.Join(p.Home, "peak-memory") }

func serveControl(ctx context.Context, o ControlOptions, v *Vitals) error {
	conn, err := o.connect(ctx, role.Control, v)
	if err != nil {
		return err
	}
	defer conn.close()
	known, err := temporalclient.EnsureAttributes(ctx, conn.client, o.Namespace, workflows.SearchAttributes())
	if err != nil {
		return err
	}
	o.Log.Info("control worker starts", "build", buildinfo.Line(), "temporal", o.TemporalAddress, "search_attributes", known)
	peak := proc.Peak{File: PeakFile(&o.Process)}
	of := o.MemoryOf
	if of == 0 {
		of = os.Getpid()
	}
	watch, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { peak.Watch(watch, of, rssInterval) })
	watchers.Go(func() { sweepStore(watch, conn.store, o.Log) })
	watchers.Go(func() { temporalclient.NewWatch(conn.client, o.Log).Run(watch) })
	announce := workflows.AnnounceCluster(conn.client)
	if o.Cluster.Backend != nil {
		watchers.Go(func() { watchCluster(watch, o.Cluster.Backend, announce, o.Log) })
	}
	defer watchers.Wait()
	defer stop()
	placing := &activities.Placement{Cluster: o.Cluster.placing(conn.client, o.Place), Announce: announce}
	control := &activities.Control{Store: conn.store, SearchAttributes: known, PeakRSS: peak.Bytes, RolloutShards: o.RolloutShards, Notify: webhook(o.Webhook, o.Log),
		Chain: run.Chain{By: chain.ThisMaker("control", "")}, Find: workflows.FindOwner(conn.client)}
	return controlWorker(control, placing).serve(ctx, conn.client, func() { v.Serving(workflows.QueueControl) })
}

func controlWorker(control *activities.Control, placing *activities.Placement) queueWorker {
	options := baseOptions()
	options.MaxConcurrentWorkflowTaskPollers = numPollers
	// The workflows of a killed worker wait so long for it before another one,
	// or its successor, replays them.
	options.StickyScheduleToStartTimeout = stickyTimeout
	options.Interceptors = workflows.Interceptors()
	return queueWorker{queue: workflows.QueueControl, options: options, register: func(r worker.Registry) {
		workflows.Register(r)
		r.RegisterActivity(control)
		r.RegisterActivity(placing)
	}}
}

// webhookTimeout bounds what a step may wait for a webhook.
const webhookTimeout = 3 * time.Second

// webhook returns what posts the alerts of runs, as JSON, to a URL; nil for none. It
// is best effort: the alerts are in the run's event log in any case. A notice may
// come twice, after a crash in between. The URL is a secret and in no log.
func webhook(to config.Secret, log *slog.Logger) func(context.Context, run.Notice) {
	if to == "" {
		return nil
	}
	client := &http.Client{Timeout: webhookTimeout}
	return func(ctx context.Context, n run.Notice) {
		if err := post(ctx, client, string(to), n); err != nil {
			log.WarnContext(ctx, "webhook did not take an alert", "run_id", n.RunID, "step", n.Step, "err", err)
		}
	}
}

func post(ctx context.Context, client *http.Client, to string, n run.Notice) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(data))
	if err != nil {
		return errors.New("the URL cannot be asked") // its error quotes the URL
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err // without the URL
	}
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // nothing is read of it
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("it answered %s", res.Status)
	}
	return nil
}
