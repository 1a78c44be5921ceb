//go:build integration

package workflows_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"temper/workflows"
)

// TestOutageWritesNoEvents measures what an outage writes to a history on the real
// server, so that the length of one that a history survives is arithmetic.
func TestOutageWritesNoEvents(t *testing.T) {
	c := dialServer(t)
	w := newWorld(2)
	w.away = func(call string) bool { return call == "log 1" }
	w.hang = func(call string) bool { return call == "select 2/2" }
	defer serve(t, c, w)()
	in := stageInput(w, 10)
	in.Run.RunID = uniqueRun(t, "outage")
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	id := workflows.StageWorkflowID(in.Run.RunID, 1, "hop1")
	startStage(t, c, id, string(data))
	refused := measureRefusals(t, c, w, id)
	w.mu.Lock()
	w.away = nil
	w.mu.Unlock()
	hanging := measureHanging(t, c, w, id)
	t.Logf("a store that refuses costs %d events and then none, one that hangs %d at most", refused, hanging)
	if most := refused + hanging; most*100 > maxHistoryEvents {
		t.Errorf("an outage of any length costs up to %d events; a history has %d", most, maxHistoryEvents)
	}
	if err := c.TerminateWorkflow(t.Context(), id, "", "measured"); err != nil {
		t.Error(err)
	}
}

// measureRefusals returns what the attempts within the workflow task cost. Those
// outside of it, one a minute for ever, have to cost nothing.
func measureRefusals(t *testing.T, c client.Client, w *world, id string) int {
	t.Helper()
	await(t, "the first attempt", func() bool { return w.count("log 1") > 0 })
	before := events(t, c, id)
	await(t, "attempts outside of workflow tasks", func() bool { return w.count("log 1") > workflows.LocalAttempts })
	outside, tried := events(t, c, id), w.count("log 1")
	await(t, "three more", func() bool { return w.count("log 1") >= tried+3 })
	if now := events(t, c, id); now != outside {
		t.Errorf("%d events for three attempts: %d a week", now-outside, (now-outside)*7*24*60/3)
	}
	return outside - before
}

// measureHanging returns what an attempt costs that hangs for as long as control work
// is tried within a workflow task, by the rate at which it keeps that alive.
func measureHanging(t *testing.T, c client.Client, w *world, id string) int {
	t.Helper()
	const measured = 6 * time.Second
	await(t, "the attempt that hangs", func() bool { return w.count("select 2/2") > 0 })
	before := events(t, c, id)
	time.Sleep(measured)
	grown := events(t, c, id) - before
	if grown == 0 {
		t.Error("a task that is kept alive wrote no event: nothing was measured")
	}
	return grown * int(workflows.LocalPatience/measured)
}

func events(t *testing.T, c client.Client, id string) int {
	t.Helper()
	d, err := workflows.Describe(context.Background(), c, id, "")
	if err != nil {
		t.Fatal(err)
	}
	return int(d.GetWorkflowExecutionInfo().GetHistoryLength())
}
