package codejudge_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"temper/sandbox/codejudge"
	"temper/sandbox/sandboxtest"
)

// announce opens a connection that promises a large body and sends one byte of it.
func announce(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have been first
	fmt.Fprintf(conn, "POST /run/batch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", 200<<20)
	return conn
}

// TestAnnouncedBodiesShutNobodyOut: bytes are charged when they arrive, and a body that
// does not arrive is given up.
func TestAnnouncedBodiesShutNobodyOut(t *testing.T) {
	server := httptest.NewServer(codejudge.NewHandler(&sandboxtest.Fake{}, codejudge.Config{Patience: 200 * time.Millisecond}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	var idle []net.Conn
	for range 16 {
		idle = append(idle, announce(t, address))
	}
	time.Sleep(20 * time.Millisecond)
	resp, err := http.Post(server.URL+"/run", "application/json", strings.NewReader(`{"type":"python","solution":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // its status is all that counts
	if resp.StatusCode != http.StatusOK {
		t.Errorf("beside connections that send nothing: %s, want 200", resp.Status)
	}
	for _, conn := range idle {
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("a body that does not arrive: %v, want 408", err)
		}
		_ = answer.Body.Close() // as above
		if answer.StatusCode != http.StatusRequestTimeout {
			t.Errorf("a body that does not arrive: %s, want 408", answer.Status)
		}
	}
}
