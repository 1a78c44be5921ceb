package activities

// Types of application errors that Temporal carries. Workflows and retry
// policies switch on these, never on text.
const (
	ErrTypeInvalidConfig = "InvalidConfig" // the user's configuration
	ErrTypeRunExists     = "RunExists"     // a run id that is taken
	ErrTypeDiverged      = "Diverged"      // NaN or Inf in loss or gradient
	ErrTypeDataset       = "Dataset"       // a missing or corrupt dataset
	ErrTypeCorrupt       = "Corrupt"       // stored bytes that do not match their reference
)
