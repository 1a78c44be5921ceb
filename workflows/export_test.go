package workflows

// FailureText is for tests: an error of a workflow that timed out cannot be made
// from outside the SDK.
var FailureText = failureText
