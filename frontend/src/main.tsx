import { render } from "preact";
import "styles";
import "./approved";
import { Shell } from "./shell";

render(<Shell />, document.getElementById("app")!);
