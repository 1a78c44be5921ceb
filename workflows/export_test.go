package workflows

// FailureText is for tests: an error of a workflow that timed out cannot be made
// from outside the SDK.
var FailureText = failureText

// The bounds of control work within a workflow task are for tests of what it costs.
const (
	LocalAttempts = localAttempts
	LocalPatience = localPatience
)
