package activities

// What tests of the package look at from outside.
var (
	ToTemporal = toTemporal
	Watch      = beatUntil
)

// StallTimeout and HeartbeatInterval are the bounds of Watch.
const (
	StallTimeout      = stallTimeout
	HeartbeatInterval = heartbeatInterval
)
