package budget

import (
	"net/http"
	"time"
)

// Response writes one response. Each part of it has its own time, so that a caller that
// does not read is given up and what is held for it is free again.
type Response struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	stall time.Duration
}

// NewResponse returns a Response whose parts may take stall each.
func NewResponse(w http.ResponseWriter, stall time.Duration) *Response {
	return &Response{w: w, ctl: http.NewResponseController(w), stall: stall}
}

// Write implements io.Writer.
func (r *Response) Write(b []byte) (int, error) {
	_ = r.ctl.SetWriteDeadline(time.Now().Add(r.stall)) // a stand-in for a connection has none
	return r.w.Write(b)
}

// Flush sends what is written.
func (r *Response) Flush() error { return r.ctl.Flush() }

// End sends what is left and lifts the deadline: the connection may serve more.
func (r *Response) End() error {
	err := r.Flush()
	_ = r.ctl.SetWriteDeadline(time.Time{}) // as above
	return err
}
