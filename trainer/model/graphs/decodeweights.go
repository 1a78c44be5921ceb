package graphs

import (
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/model"
)

// decodeScope holds the weights of DecodeStep. Its linear weights are [in, out]. With
// few rows the CPU backend multiplies that layout about twice as fast as [out, in],
// and rounds each row in the same way, whatever the number of rows.
const decodeScope = ScopeName + "_decode"

// decodePath is where the store keeps a weight of the decode layout.
func decodePath(name string) string { return ml.JoinPath("/", decodeScope, name) }

// ImportDecode puts the weights into the store in the layout that DecodeStep reads, in
// place of earlier ones. Errors: as for Import.
func ImportDecode(store *ml.Store, cfg model.Config, lookup func(name string) (model.Tensor, bool)) error {
	if err := cfg.CheckTensors(lookup); err != nil {
		return err
	}
	storeWeight := func(name string, data []float32, shape ...int) error {
		if err := setVariable(store, decodePath(name), tensors.FromFlatDataAndDimensions(data, shape...)); err != nil {
			return fmt.Errorf("set %s for decoding: %w", name, err)
		}
		return nil
	}
	inParts := map[string]bool{} // the weights whose product is the input of Down
	for _, l := range cfg.Layers() {
		inParts[l.Gate.Weight], inParts[l.Up.Weight] = true, true
	}
	for _, spec := range cfg.Tensors() {
		t, _ := lookup(spec.Name) // checked above
		var err error
		switch {
		case spec.Name == model.NameHead:
			continue
		case spec.Name == model.NameEmbed || len(spec.Shape) == 1:
			err = storeWeight(spec.Name, t.Data, spec.Shape...)
		case inParts[spec.Name]:
			err = storeParts(storeWeight, spec.Name, t, cfg.HiddenSize)
		default:
			err = storePanels(storeWeight, spec.Name, t, spec.Shape[0])
		}
		if err != nil {
			return err
		}
	}
	head, _ := lookup(cfg.HeadName())
	return storePanels(storeWeight, model.NameHead, head, cfg.PaddedVocab())
}

// storeFunc stores a weight of the decode layout.
type storeFunc func(name string, data []float32, shape ...int) error

// storePanels stores a weight [out, in] as [in, width], in panels of rows.
func storePanels(store storeFunc, name string, t model.Tensor, width int) error {
	data, depth := transpose(t, width), t.Shape[1]
	n := storedPanels(depth, width)
	for i := range n {
		from, to := storedPanel(i, n, depth)
		if err := store(panelName(name, i), data[from*width:to*width], to-from, width); err != nil {
			return err
		}
	}
	return nil
}

// storeParts cuts a weight [out, in] into weights [in, part]. Their results are the
// panels of the factor that a later product, of width columns, takes.
func storeParts(store storeFunc, name string, t model.Tensor, width int) error {
	out, in := t.Shape[0], t.Shape[1]
	n := storedPanels(out, width)
	for i := range n {
		from, to := storedPanel(i, n, out)
		part := model.Tensor{Shape: []int{to - from, in}, Data: t.Data[from*in : to*in]}
		if err := storePanels(store, panelName(name, i), part, to-from); err != nil {
			return err
		}
	}
	return nil
}

// panelName names a panel of a weight.
func panelName(name string, i int) string { return fmt.Sprintf("%s.panel%d", name, i) }

// transpose turns [out, in] into [in, width]; columns beyond out are zero.
func transpose(t model.Tensor, width int) []float32 {
	rows, in := t.Shape[0], t.Shape[1]
	data := make([]float32, in*width)
	for o := range rows {
		for i := range in {
			data[i*width+o] = t.Data[o*in+i]
		}
	}
	return data
}
