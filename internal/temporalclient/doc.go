// Package temporalclient connects to the Temporal server and uses what the server has beside
// workflows: its address and error text, the search attributes of its namespace, schedules of
// re-trainings, and the button "Pause Workflow" of the web UI. The server pauses one workflow
// and no other, so the package tells the workflows above and below, which hold at their next
// safe point.
//
// Invariant: settings come from the same file and TEMPORAL_* variables as those of the
// temporal command. The server's current answer determines what a pause holds, so several
// processes may watch, and each may die at any moment.
package temporalclient
