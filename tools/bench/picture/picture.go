// Package picture draws panels of bars as a PNG. It knows nothing of what they show.
package picture

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

// Bar is one line of a panel; a value of 0 draws no bar, only its text.
type Bar struct {
	Label string
	Value float64
	Text  string
	// Ours is drawn in another colour.
	Ours bool
}

// Panel is a list of bars under a title. The longest fills the width.
type Panel struct {
	Title string
	Bars  []Bar
}

// PNG draws panels below a headline.
func PNG(headline string, panels []Panel) ([]byte, error) {
	height := 2 * margin
	for _, p := range panels {
		height += panelGap + len(p.Bars)*(barHeight+barGap)
	}
	c, err := newCanvas(pictureWidth, height)
	if err != nil {
		return nil, err
	}
	y := margin
	c.write(c.small, faint, margin, y+8, headline)
	for _, p := range panels {
		y += panelGap
		c.write(c.bold, ink, margin, y-18, p.Title)
		y = c.bars(y, p.Bars)
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

// bars draws from y on and returns where they end.
func (c *canvas) bars(y int, bars []Bar) int {
	longest := 0.0
	for _, b := range bars {
		longest = max(longest, b.Value)
	}
	for _, b := range bars {
		x, end, colour := margin+labelWidth, margin+labelWidth, otherBar
		if longest > 0 {
			end += max(2, int(b.Value/longest*float64(barRight-x)))
		}
		if b.Ours {
			colour = oursBar
		}
		draw.Draw(c.image, image.Rect(x, y, end, y+barHeight), image.NewUniform(colour), image.Point{}, draw.Src)
		c.write(c.regular, ink, margin, y+barHeight-9, b.Label)
		c.value(b.Text, end, y+barHeight-9)
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
