package budget

import (
	"net/http"
	"time"
)

// Response writes one response. Each part of it has a deadline, so that a caller that does
// not read loses the connection and its memory is released.
type Response struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	stall time.Duration
}

// NewResponse returns a Response that allows stall for each part.
func NewResponse(w http.ResponseWriter, stall time.Duration) *Response {
	return &Response{w: w, ctl: http.NewResponseController(w), stall: stall}
}

// Write implements io.Writer.
func (r *Response) Write(b []byte) (int, error) {
	_ = r.ctl.SetWriteDeadline(time.Now().Add(r.stall)) // a connection in a test has none
	return r.w.Write(b)
}

// Flush sends the written bytes.
func (r *Response) Flush() error { return r.ctl.Flush() }

// End sends the remaining bytes and clears the deadline, so that the connection can serve
// more requests.
func (r *Response) End() error {
	err := r.Flush()
	_ = r.ctl.SetWriteDeadline(time.Time{}) // as above
	return err
}
