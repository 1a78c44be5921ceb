package ui

import (
	"net/http"
	"time"

	"temper/internal/query"
)

// SQLRequest is a question in SQL.
type SQLRequest struct {
	SQL string `json:"sql"`
}

// SQLView is its answer. A cell is a text, a number or null.
type SQLView struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
	// Truncated says that there are more rows than one answer holds.
	Truncated    bool  `json:"truncated"`
	Milliseconds int64 `json:"ms"`
}

// answerSQL answers one query at a time: each may take a processor and much memory.
func (s *Server) answerSQL(r *request, in SQLRequest) (SQLView, error) {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-r.Context().Done():
		return SQLView{}, r.Context().Err()
	case <-time.After(sqlPatience):
		return SQLView{}, problem{http.StatusServiceUnavailable, "another query is being answered: try again"}
	}
	began := s.Now()
	got, err := query.Run(r.Context(), s.Store, in.SQL, query.DefaultLimits())
	if err != nil {
		return SQLView{}, badQuery(err)
	}
	out := SQLView{Columns: got.Columns, Rows: got.Rows, Truncated: got.Truncated, Milliseconds: s.Now().Sub(began).Milliseconds()}
	if out.Rows == nil {
		out.Rows = [][]any{}
	}
	return out, nil
}

// sqlPatience is how long a query waits for the one before.
const sqlPatience = 6 * time.Second

func badQuery(err error) error {
	if code, text := status(err); code == http.StatusNotFound {
		return problem{http.StatusBadRequest, text}
	}
	return err
}

func (s *Server) listTables(*request) ([]query.Table, error) { return query.Tables(), nil }
