package chatclient

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// InProcess is a transport to a handler of this process. No other process can reach it.
type InProcess struct{ Handler http.Handler }

var _ http.RoundTripper = InProcess{}

// RoundTrip implements http.RoundTripper. The handler ends, at the latest, when the body
// of the answer is closed.
func (t InProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	reader, writer := io.Pipe()
	w := &pipeWriter{header: http.Header{}, body: writer, begun: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		in := r.Clone(ctx)
		if in.Body == nil {
			in.Body = http.NoBody
		}
		t.Handler.ServeHTTP(w, in)
		w.WriteHeader(http.StatusOK)
		_ = writer.Close()
	}()
	end := func() {
		cancel()
		_ = reader.Close()
		<-ended
	}
	select {
	case <-w.begun:
	case <-ctx.Done():
		end()
		return nil, ctx.Err()
	}
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: &pipeBody{Reader: reader, end: end}, ContentLength: -1, Request: r,
	}, nil
}

// pipeBody ends the handler when it is closed.
type pipeBody struct {
	io.Reader
	end func()
}

// Close implements io.Closer.
func (b *pipeBody) Close() error {
	b.end()
	return nil
}

// pipeWriter is the handler's side.
type pipeWriter struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	status int
	begun  chan struct{}
}

// Header implements http.ResponseWriter.
func (w *pipeWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.begun)
	})
}

// Write implements http.ResponseWriter.
func (w *pipeWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(data)
}

// FlushError implements what http.ResponseController asks for; a pipe keeps nothing.
func (w *pipeWriter) FlushError() error { return nil }
