import messages from "../../src/stepscope/model/strings/en.json";
import strings from "./strings/en.json";

export default { strings, messages };
