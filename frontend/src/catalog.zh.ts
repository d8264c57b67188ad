import messages from "../../src/stepscope/model/strings/zh.json";
import strings from "./strings/zh.json";

export default { strings, messages };
