package board

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// Sizes of the picture in pixels. It is drawn for screens with two pixels a point.
const (
	pictureWidth = 1600
	labelWidth   = 360
	barRight     = 1330
	barHeight    = 34
	barGap       = 12
	panelGap     = 70
	margin       = 40
)

var (
	ink      = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint    = color.RGBA{0x77, 0x77, 0x77, 0xff}
	oursBar  = color.RGBA{0x1b, 0x9e, 0x77, 0xff}
	otherBar = color.RGBA{0xa6, 0xb4, 0xc4, 0xff}
)

// bar is one line of a panel; a value of 0 draws no bar, only its text.
type bar struct {
	label string
	value float64
	text  string
}

type panel struct {
	title string
	bars  []bar
}

// panels are what the picture shows: calls a core for each program, memory, probes.
func (r Report) panels() []panel {
	var out []panel
	for _, row := range r.Rows {
		title := row.Program + ": calls a second that one core can do (more is better)"
		if len(out) == 0 || out[len(out)-1].title != title {
			out = append(out, panel{title: title})
		}
		last := &out[len(out)-1]
		last.bars = append(last.bars, bar{row.Way, row.PerCore, number(row.PerCore)})
	}
	memory, held := panel{title: "memory of one that waits (less is better)"}, panel{title: fmt.Sprintf("attempts that are held, of %d", len(r.Probes))}
	for _, w := range r.Ways {
		if w.Missing != "" {
			continue
		}
		mib := float64(w.Idle) / (1 << 20)
		memory.bars = append(memory.bars, bar{w.Name, mib, fmt.Sprintf("%.1f MiB, %s", mib, w.Unit)})
		held.bars = append(held.bars, bar{w.Name, float64(len(w.Held)), fmt.Sprint(len(w.Held))})
	}
	return append(out, memory, held)
}

// PNG draws the report.
func (r Report) PNG() ([]byte, error) {
	panels := r.panels()
	height := 2 * margin
	for _, p := range panels {
		height += panelGap + len(p.bars)*(barHeight+barGap)
	}
	c, err := newCanvas(pictureWidth, height)
	if err != nil {
		return nil, err
	}
	y := margin
	c.write(c.small, faint, margin, y+8, r.headline())
	for _, p := range panels {
		y += panelGap
		c.write(c.bold, ink, margin, y-18, p.title)
		y = c.bars(y, p.bars)
	}
	var buf bytes.Buffer
	err = png.Encode(&buf, c.image)
	return buf.Bytes(), err
}

// canvas is a white picture with fonts.
type canvas struct {
	image                *image.RGBA
	regular, bold, small font.Face
}

func newCanvas(width, height int) (*canvas, error) {
	c := &canvas{image: image.NewRGBA(image.Rect(0, 0, width, height))}
	draw.Draw(c.image, c.image.Bounds(), image.White, image.Point{}, draw.Src)
	for _, f := range []struct {
		face *font.Face
		ttf  []byte
		size float64
	}{{&c.regular, goregular.TTF, 24}, {&c.bold, gobold.TTF, 26}, {&c.small, goregular.TTF, 20}} {
		parsed, err := opentype.Parse(f.ttf)
		if err != nil {
			return nil, fmt.Errorf("font: %w", err)
		}
		if *f.face, err = opentype.NewFace(parsed, &opentype.FaceOptions{Size: f.size, DPI: 72, Hinting: font.HintingFull}); err != nil {
			return nil, fmt.Errorf("font: %w", err)
		}
	}
	return c, nil
}

// write puts text on a base line.
func (c *canvas) write(face font.Face, ink color.Color, x, y int, text string) {
	d := font.Drawer{Dst: c.image, Src: image.NewUniform(ink), Face: face, Dot: fixed.P(x, y)}
	d.DrawString(text)
}

// bars draws from y on and returns where they end; the longest fills the width.
func (c *canvas) bars(y int, bars []bar) int {
	longest := 0.0
	for _, b := range bars {
		longest = max(longest, b.value)
	}
	for i, b := range bars {
		x, end, colour := margin+labelWidth, margin+labelWidth, otherBar
		if longest > 0 {
			end += max(2, int(b.value/longest*float64(barRight-x)))
		}
		if i == 0 {
			colour = oursBar
		}
		draw.Draw(c.image, image.Rect(x, y, end, y+barHeight), image.NewUniform(colour), image.Point{}, draw.Src)
		c.write(c.regular, ink, margin, y+barHeight-9, b.label)
		c.value(b.text, end, y+barHeight-9)
		y += barHeight + barGap
	}
	return y
}

// value writes beside the end of a bar, or before it where there is no room.
func (c *canvas) value(text string, end, y int) {
	width := font.MeasureString(c.regular, text).Ceil()
	x := end + 12
	if x+width > pictureWidth-margin {
		x = end - width - 12
	}
	c.write(c.regular, ink, x, y, text)
}
