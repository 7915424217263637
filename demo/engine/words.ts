// The words that the demo model knows, by the part they play in a sentence.

const list = (text: string): readonly string[] => text.trim().split(/\s+/);

export const DETERMINERS = list('the this that every each another one no some any my your her his its their our');

export const ADJECTIVES = list(`
  quiet small bright heavy silver early distant gentle broken hidden narrow golden empty patient curious ancient simple warm
  cold green blue wooden round sharp soft wide deep proud honest hollow lucky modern noisy plain quick rapid secret silent
  steady strange tall thin tiny tired useful vast wild wise young clever crooked dusty familiar fragile frozen humble
  jagged kind late lonely mild nervous open pale polite ripe rough shy slow smooth stubborn tender urgent vivid weary
  careful certain common digital electric final public private safe secure sealed signed trusted verified
`);

export const NOUNS = list(`
  river garden window machine letter morning mountain lantern teacher captain market bridge forest engine story winter summer
  island harbor village kitchen library question answer number signal pattern shadow mirror ladder basket button candle carpet
  castle circle corner cousin desert doctor dragon drawer farmer father feather fence field finger flower friend glass
  hammer hill horse house hour idea jacket journey key king lake lamp language leaf lemon lesson light line lion list
  melody memory message meter model moment moon mother museum music neighbor needle night notebook ocean office orange
  painter paper passenger path pencil picture pilot planet pocket poem potato promise puzzle queen rabbit rain reason record
  ring road robot room root rope sailor salt sand school sea season secret seed shelf ship shoe shore silence sister sky
  smile song sound spoon spring square star station stone storm street sugar sun table teapot theory thread ticket tiger tower
  town train tree tunnel uncle valley violin visitor voice wagon wall watch water wheel whisper wind wing winner wolf word
  writer year yard zebra circuit clock compass computer crystal cloud network proof receipt seal server signature token vault
`);

export const VERBS = list(`
  carries follows opens finds keeps holds remembers crosses watches answers counts builds paints writes reads hears sees
  knows makes takes gives brings calls changes checks chooses cleans collects copies covers draws drops enters explains
  feeds fills folds forgets gathers greets guards guides hides invites joins lifts lights likes loses loves meets measures
  mends moves needs notices offers orders passes plants pulls pushes reaches repairs repeats returns saves seeks sells sends
  shares shows sings sketches sorts studies surprises teaches tells tests touches trades trusts turns understands uses visits
  wants warms washes weighs wraps admires borrows describes discovers imagines protects proves signs verifies seals
`);

export const ADVERBS = list(`
  slowly quietly often always never softly gladly again together carefully suddenly almost rarely gently calmly bravely kindly
  neatly soon politely patiently secretly warmly eagerly easily
`);

export const OPENERS = list(`
  Perhaps Sometimes Today Tonight Somewhere Meanwhile Often Usually Again Still Yesterday Tomorrow Here There Indeed Later Soon
`);

export const PREPOSITIONS = list(`
  under over near behind beside beyond through across around between inside against along above below with without from into
  toward after before until for of in on at by
`);

export const CONJUNCTIONS = list('and but while because so when if although unless where');

export const PRONOUNS = list('she he it nobody everyone someone everybody anyone something');

export const COMMAS = [',', ';', ':'];

export const STOPS = ['.', '!', '?'];

/** Known in a prompt, never spoken: they would break the grammar. */
export const HEARD = list(`
  a an I you we they me him us them is are was were be been am do does did have has had will would can could should may must
  not yes hello hi please thanks thank what who why how which than then there here about as or to up out off if only just very
  more most much many few all both other such own same too also good bad new old big little long short first last next say says
  said tell ask write make give help explain answer question word words sentence people man woman child world day time way
  thing life hand part place case week company system program government user assistant system prompt text code data file
  function name type value error test json python test translate summarize story poem joke count list write speak think know
  get go come see look use find want work call try need feel become leave put mean keep let begin seem turn start show hear
  play run move like live believe hold bring happen provide sit stand lose pay meet include continue set learn change lead
`);

/** Pieces of words that the model does not know. */
export const PIECES = list(`
  th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic ne ea ra ce
  li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc et ut ss so rs un lo wa ge ie wh ee wi em
  ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv ia am fi ci vi pl ig tu ev ld ry mp fe bl ab gh ty op wo sa ay
  ex ke ui fr oo ag ou qu ck up do by my go if ow ap ph br cr gr dr fl cl sp sw sc sk sl sm sn tw kn wr gu
  ing ion tion ation ent ment ness able ible ful less ous ive est ist ism ity ance ence ize ate ight ough ould ther ever pre con
  com pro dis mis non sub per para inter trans over under out self anti auto micro multi
`);
